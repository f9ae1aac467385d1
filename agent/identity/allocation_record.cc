// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/allocation_record.h"

#include <yaml-cpp/yaml.h>

#include "agent/cat.h"

namespace gpuloom {
namespace {

// Raised only when an older agent must not take the record. Keys that may be missing do not raise
// it.
constexpr int kFormat = 1;

// A term of a policy's, as a record names it.
template <typename Terms>
struct TermKey {
  const char* key;
  uint32_t Terms::*term;
};
// Terms are structs of 32-bit words and nothing else, so their size says how many there are.
template <typename Terms, size_t N>
constexpr bool NamesEveryTerm(const TermKey<Terms> (&)[N]) {
  return N * sizeof(uint32_t) == sizeof(Terms);
}

constexpr TermKey<control::ShareTerms> kShareKeys[] = {
    {"namespaceWeight", &control::ShareTerms::namespace_weight},
    {"weight", &control::ShareTerms::weight},
    {"priority", &control::ShareTerms::priority},
    {"namespaceTimePermille", &control::ShareTerms::namespace_time_permille},
    {"timePermille", &control::ShareTerms::time_permille}};
constexpr TermKey<control::KernelTerms> kKernelKeys[] = {
    {"kernelWarnAfterMs", &control::KernelTerms::warn_after_ms},
    {"kernelEndAfterMs", &control::KernelTerms::end_after_ms}};
constexpr TermKey<control::PartitionTerms> kPartitionKeys[] = {
    {"namespaceSmPercent", &control::PartitionTerms::namespace_sm_percent},
    {"namespaceSmReserved", &control::PartitionTerms::namespace_sm_reserved},
    {"smPercent", &control::PartitionTerms::sm_percent},
    {"smReserved", &control::PartitionTerms::sm_reserved}};
static_assert(NamesEveryTerm(kShareKeys) && NamesEveryTerm(kKernelKeys) &&
                  NamesEveryTerm(kPartitionKeys),
              "every term is kept");

template <typename Terms, size_t N>
void Write(const TermKey<Terms> (&keys)[N], const Terms& terms, YAML::Emitter* out) {
  for (const auto& [key, term] : keys) *out << YAML::Key << key << YAML::Value << terms.*term;
}

// Absent if an older agent wrote it; then not specified.
template <typename Terms, size_t N>
void Read(const TermKey<Terms> (&keys)[N], const YAML::Node& node, Terms* terms) {
  for (const auto& [key, term] : keys) terms->*term = node[key].template as<uint32_t>(0);
}

int64_t ToMillis(Clock::Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
Clock::Time FromMillis(int64_t millis) { return Clock::Time(std::chrono::milliseconds(millis)); }

}  // namespace

// Texts are quoted always: YAML would read a name such as "1e3" or "no" as something else.
std::string FormatRecord(const Allocation& allocation) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "name" << YAML::Value << YAML::DoubleQuoted << allocation.name;
  out << YAML::Key << "gpu" << YAML::Value << YAML::DoubleQuoted << allocation.gpu_uuid;
  out << YAML::Key << "shim" << YAML::Value << YAML::DoubleQuoted << allocation.library_files.cuda;
  out << YAML::Key << "nvml" << YAML::Value << YAML::DoubleQuoted << allocation.library_files.nvml;
  out << YAML::Key << "trace" << YAML::Value << YAML::DoubleQuoted
      << allocation.library_files.trace;
  out << YAML::Key << "autoSlotBytes" << YAML::Value << allocation.auto_slot_bytes;
  out << YAML::Key << "createdAtMs" << YAML::Value << ToMillis(allocation.created_at);
  out << YAML::Key << "devices" << YAML::Value << YAML::BeginSeq;
  for (const std::string& id : allocation.device_ids) out << YAML::DoubleQuoted << id;
  out << YAML::EndSeq;
  // Written for shapes only: the IDs of single slots contain their numbers.
  if (!allocation.slots.empty()) {
    out << YAML::Key << "slots" << YAML::Value << YAML::Flow << allocation.slots;
  }
  if (allocation.binding.has_value()) {
    const Binding& binding = *allocation.binding;
    out << YAML::Key << "binding" << YAML::Value << YAML::BeginMap;
    out << YAML::Key << "namespace" << YAML::Value << YAML::DoubleQuoted
        << binding.owner.pod_namespace;
    out << YAML::Key << "pod" << YAML::Value << YAML::DoubleQuoted << binding.owner.pod;
    out << YAML::Key << "container" << YAML::Value << YAML::DoubleQuoted << binding.owner.container;
    out << YAML::Key << "trustDomain" << YAML::Value << YAML::DoubleQuoted << binding.trust_domain;
    out << YAML::Key << "quotaBytes" << YAML::Value << binding.quota_bytes;
    Write(kShareKeys, binding.shares, &out);
    out << YAML::Key << "memoryWaitMs" << YAML::Value << binding.memory_wait_ms;
    Write(kKernelKeys, binding.kernels, &out);
    Write(kPartitionKeys, binding.partition, &out);
    out << YAML::Key << "trace" << YAML::Value << static_cast<uint32_t>(binding.trace);
    out << YAML::Key << "rescueAfterMs" << YAML::Value << binding.rescue_after_ms;
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
    // Absent if an agent wrote it that did not provide them.
    allocation.library_files.nvml = root["nvml"].as<std::string>("");
    allocation.library_files.trace = root["trace"].as<std::string>("");
    allocation.auto_slot_bytes = root["autoSlotBytes"].as<uint64_t>(0);
    allocation.created_at = FromMillis(root["createdAtMs"].as<int64_t>());
    allocation.device_ids = root["devices"].as<std::vector<std::string>>();
    allocation.slots = root["slots"].as<std::vector<int>>(std::vector<int>());
    if (allocation.name.empty() || allocation.device_ids.empty())
      return absl::DataLossError("incomplete record");
    if (const YAML::Node node = root["binding"]) {
      Binding binding;
      binding.owner.pod_namespace = node["namespace"].as<std::string>();
      binding.owner.pod = node["pod"].as<std::string>();
      binding.owner.container = node["container"].as<std::string>();
      binding.trust_domain = node["trustDomain"].as<std::string>();
      binding.quota_bytes = node["quotaBytes"].as<uint64_t>();
      Read(kShareKeys, node, &binding.shares);
      binding.memory_wait_ms = node["memoryWaitMs"].as<uint32_t>(0);
      Read(kKernelKeys, node, &binding.kernels);
      Read(kPartitionKeys, node, &binding.partition);
      // A newer agent's terms, which this one does not know: none is the safe choice, until the
      // next grant.
      const uint32_t trace = node["trace"].as<uint32_t>(0);
      if (trace < control::kTraceTerms) binding.trace = static_cast<control::TraceTerms>(trace);
      binding.rescue_after_ms = node["rescueAfterMs"].as<uint32_t>(0);
      binding.bound_at = FromMillis(node["boundAtMs"].as<int64_t>());
      allocation.binding = binding;
    }
    return allocation;
  } catch (const YAML::Exception& e) {
    return absl::DataLossError(Cat("line ", e.mark.line + 1, ": ", e.msg));
  }
}

}  // namespace gpuloom
