// SPDX-License-Identifier: Apache-2.0
#include "agent/run/slot_records.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include "agent/node/gpu_standing.h"
#include "agent/node/list_folder.h"
#include "agent/node/one_line.h"
#include "agent/run/shown_time.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".yaml";

// Names come from pods, so they are made fit for a terminal.
std::string TextOf(const YAML::Node& node) {
  return OneLine(node.as<std::string>(""), kLongestNameBytes);
}

// Of an agent's record (agent/identity/allocation_book.cc) only what a command shows. A newer agent may have added
// keys, which are passed over.
bool Parse(const std::string& text, SlotRecord* record, std::string* error) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() || !root["name"] || !root["gpu"] || !root["devices"]) {
      *error = "not a record";
      return false;
    }
    record->allocation = TextOf(root["name"]);
    record->gpu = TextOf(root["gpu"]);
    // An older agent's devices are one slot each.
    const YAML::Node slots = root["slots"] ? root["slots"] : root["devices"];
    record->slots = static_cast<uint32_t>(slots.size());
    for (const char* key : {"shim", "nvml", "trace"}) {
      if (const std::string file = TextOf(root[key]); !file.empty())
        record->libraries.push_back(file);
    }
    // None: the kubelet has given the slots to a pod that has not started yet.
    const YAML::Node binding = root["binding"];
    if (!binding) return true;
    record->is_bound = true;
    record->pod_namespace = TextOf(binding["namespace"]);
    record->pod = TextOf(binding["pod"]);
    record->container = TextOf(binding["container"]);
    record->trust_domain = TextOf(binding["trustDomain"]);
    record->quota_bytes = binding["quotaBytes"].as<uint64_t>(0);
    record->since_unix_s = binding["boundAtMs"].as<int64_t>(0) / 1000;
    return true;
  } catch (const YAML::Exception& e) {
    *error = "line " + std::to_string(e.mark.line + 1) + ": " + e.msg;
    return false;
  }
}

// False without an error: it is gone.
bool ReadRecord(const fs::path& path, SlotRecord* record, std::string* error) {
  std::ifstream file(path);
  if (!file) {
    if (errno != ENOENT) *error = strerror(errno);
    return false;
  }
  std::stringstream text;
  text << file.rdbuf();
  return Parse(text.str(), record, error);
}

}  // namespace

SlotRecords ReadSlotRecords(const std::string& state_dir) {
  SlotRecords all;
  const fs::path folder = fs::path(state_dir) / "records";
  const ShownTime shown(state_dir);
  std::error_code failed;
  // An agent may add and remove records meanwhile: what is gone by the time it is read is no trouble.
  for (const fs::path& path : ListFolder(folder, &failed)) {
    if (path.extension() != kSuffix) continue;
    SlotRecord record;
    std::string error;
    if (ReadRecord(path, &record, &error)) {
      record.folder = FolderOfGpu(state_dir, record.gpu);
      record.since_unix_s = shown.Of(record.since_unix_s);
      all.records.push_back(std::move(record));
    } else if (!error.empty()) {
      all.troubles.push_back(path.string() + " cannot be read: " + error);
    }
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    all.troubles.push_back(folder.string() + " cannot be read: " + failed.message());
  }
  std::ranges::sort(all.records, {}, [](const SlotRecord& record) {
    return std::tie(record.pod_namespace, record.pod, record.container, record.gpu,
                    record.allocation);
  });
  return all;
}

std::optional<SlotRecord> ReadSlotRecord(const std::string& state_dir,
                                         const std::string& allocation) {
  SlotRecord record;
  std::string ignored;
  if (!ReadRecord(fs::path(state_dir) / "records" / (allocation + kSuffix), &record, &ignored)) {
    return std::nullopt;
  }
  record.folder = FolderOfGpu(state_dir, record.gpu);
  record.since_unix_s = ShownTime(state_dir).Of(record.since_unix_s);
  return record;
}

}  // namespace gpuloom::run
