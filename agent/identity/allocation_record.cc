// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/allocation_record.h"

#include <yaml-cpp/yaml.h>

#include "agent/cat.h"

namespace gpuloom {
namespace {

constexpr int kFormat = 1;

struct ShareKey {
  const char* key;
  uint32_t control::ShareTerms::*term;
};
constexpr ShareKey kShareKeys[] = {
    {"namespaceWeight", &control::ShareTerms::namespace_weight},
    {"weight", &control::ShareTerms::weight},
    {"priority", &control::ShareTerms::priority},
    {"namespaceTimePermille", &control::ShareTerms::namespace_time_permille},
    {"timePermille", &control::ShareTerms::time_permille}};
static_assert(sizeof(kShareKeys) / sizeof(kShareKeys[0]) * sizeof(uint32_t) ==
                  sizeof(control::ShareTerms),
              "every term is kept");

struct KernelKey {
  const char* key;
  uint32_t control::KernelTerms::*term;
};
constexpr KernelKey kKernelKeys[] = {{"kernelWarnAfterMs", &control::KernelTerms::warn_after_ms},
                                     {"kernelEndAfterMs", &control::KernelTerms::end_after_ms}};
static_assert(sizeof(kKernelKeys) / sizeof(kKernelKeys[0]) * sizeof(uint32_t) ==
                  sizeof(control::KernelTerms),
              "every term is kept");

struct PartitionKey {
  const char* key;
  uint32_t control::PartitionTerms::*term;
};
constexpr PartitionKey kPartitionKeys[] = {
    {"namespaceSmPercent", &control::PartitionTerms::namespace_sm_percent},
    {"namespaceSmReserved", &control::PartitionTerms::namespace_sm_reserved},
    {"smPercent", &control::PartitionTerms::sm_percent},
    {"smReserved", &control::PartitionTerms::sm_reserved}};
static_assert(sizeof(kPartitionKeys) / sizeof(kPartitionKeys[0]) * sizeof(uint32_t) ==
                  sizeof(control::PartitionTerms),
              "every term is kept");

int64_t ToMillis(Clock::Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
Clock::Time FromMillis(int64_t millis) { return Clock::Time(std::chrono::milliseconds(millis)); }

}  // namespace

std::string FormatRecord(const Allocation& allocation) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "name" << YAML::Value << YAML::DoubleQuoted << allocation.name;
  out << YAML::Key << "gpu" << YAML::Value << YAML::DoubleQuoted << allocation.gpu_uuid;
  out << YAML::Key << "shim" << YAML::Value << YAML::DoubleQuoted << allocation.library_files.cuda;
  out << YAML::Key << "nvml" << YAML::Value << YAML::DoubleQuoted << allocation.library_files.nvml;
  out << YAML::Key << "createdAtMs" << YAML::Value << ToMillis(allocation.created_at);
  out << YAML::Key << "devices" << YAML::Value << YAML::BeginSeq;
  for (const std::string& id : allocation.device_ids) out << YAML::DoubleQuoted << id;
  out << YAML::EndSeq;
  if (allocation.binding.has_value()) {
    const Binding& binding = *allocation.binding;
    out << YAML::Key << "binding" << YAML::Value << YAML::BeginMap;
    out << YAML::Key << "namespace" << YAML::Value << YAML::DoubleQuoted
        << binding.owner.pod_namespace;
    out << YAML::Key << "pod" << YAML::Value << YAML::DoubleQuoted << binding.owner.pod;
    out << YAML::Key << "container" << YAML::Value << YAML::DoubleQuoted << binding.owner.container;
    out << YAML::Key << "trustDomain" << YAML::Value << YAML::DoubleQuoted << binding.trust_domain;
    out << YAML::Key << "quotaBytes" << YAML::Value << binding.quota_bytes;
    for (const auto& [key, term] : kShareKeys) {
      out << YAML::Key << key << YAML::Value << binding.shares.*term;
    }
    out << YAML::Key << "memoryWaitMs" << YAML::Value << binding.memory_wait_ms;
    for (const auto& [key, term] : kKernelKeys) {
      out << YAML::Key << key << YAML::Value << binding.kernels.*term;
    }
    for (const auto& [key, term] : kPartitionKeys) {
      out << YAML::Key << key << YAML::Value << binding.partition.*term;
    }
    out << YAML::Key << "boundAtMs" << YAML::Value << ToMillis(binding.bound_at);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

absl::StatusOr<Allocation> ParseRecord(const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return absl::DataLossError("not a record");
    if (root["format"].as<int>() > kFormat) {
      return absl::FailedPreconditionError(
          Cat("written by a newer agent, in format ", root["format"].as<int>()));
    }
    Allocation allocation;
    allocation.name = root["name"].as<std::string>();
    allocation.gpu_uuid = root["gpu"].as<std::string>();
    allocation.library_files.cuda = root["shim"].as<std::string>();
    // Absent if an agent wrote it that did not provide NVML.
    if (const YAML::Node nvml = root["nvml"]) {
      allocation.library_files.nvml = nvml.as<std::string>();
    }
    allocation.created_at = FromMillis(root["createdAtMs"].as<int64_t>());
    allocation.device_ids = root["devices"].as<std::vector<std::string>>();
    if (allocation.name.empty() || allocation.device_ids.empty())
      return absl::DataLossError("incomplete record");
    if (const YAML::Node node = root["binding"]) {
      Binding binding;
      binding.owner.pod_namespace = node["namespace"].as<std::string>();
      binding.owner.pod = node["pod"].as<std::string>();
      binding.owner.container = node["container"].as<std::string>();
      binding.trust_domain = node["trustDomain"].as<std::string>();
      binding.quota_bytes = node["quotaBytes"].as<uint64_t>();
      // Absent if an older agent wrote it; then not specified.
      for (const auto& [key, term] : kShareKeys) binding.shares.*term = node[key].as<uint32_t>(0);
      binding.memory_wait_ms = node["memoryWaitMs"].as<uint32_t>(0);
      for (const auto& [key, term] : kKernelKeys) {
        binding.kernels.*term = node[key].as<uint32_t>(0);
      }
      for (const auto& [key, term] : kPartitionKeys) {
        binding.partition.*term = node[key].as<uint32_t>(0);
      }
      binding.bound_at = FromMillis(node["boundAtMs"].as<int64_t>());
      allocation.binding = binding;
    }
    return allocation;
  } catch (const YAML::Exception& e) {
    return absl::DataLossError(Cat("line ", e.mark.line + 1, ": ", e.msg));
  }
}

}  // namespace gpuloom
