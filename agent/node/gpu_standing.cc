// SPDX-License-Identifier: Apache-2.0
#include "agent/node/gpu_standing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "agent/node/one_line.h"
#include "agent/node/whole_file.h"

namespace gpuloom {
namespace {

using Json = nlohmann::ordered_json;

// More than kMaxImpossibleRules reasons of kMaxReasonBytes take, with what is escaped in JSON.
constexpr size_t kMaxFileBytes = 64 << 10;
constexpr size_t kMaxReasonBytes = 512;

std::string DrainPath(const std::string& folder) { return folder + "/drained.json"; }

// Always false. The message ends with what to do, where that is known.
bool Fail(const std::string& path, const char* what, int error, std::string* message) {
  *message = path + ": " + what + ": " + strerror(error);
  if (error == EACCES || error == EPERM) *message += "; run it as root, or as who owns that folder";
  if (error == ENOSPC || error == EDQUOT) *message += "; free space there";
  return false;
}

bool IsThere(const std::string& path) {
  struct stat ignored;
  return lstat(path.c_str(), &ignored) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

// False if there is no such file. One that cannot be read is as an empty one, with the reason in `unread`.
bool ReadIfThere(const std::string& path, std::string* text, std::string* unread) {
  FileFailure failure;
  unread->clear();
  if (ReadSmallFile(path, kMaxFileBytes, text, &failure)) return true;
  text->clear();
  // Without a free file descriptor opening fails the same whether there is a file or not.
  if (!IsThere(path)) return false;
  Fail(path, "cannot be read now", failure.error, unread);
  return true;
}

// Fields are looked up one by one, and one of another type counts as missing: a file may be of an
// earlier or a later release.
template <typename T>
T ValueOf(const Json& json, const char* key, const T& otherwise) {
  const auto found = json.find(key);
  if (found == json.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<T>() : otherwise;
  } else {
    return found->is_number_integer() ? found->template get<T>() : otherwise;
  }
}

std::string Dump(const Json& json) {
  // An operator's reason may be any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FolderOfGpu(const std::string& state_directory, const std::string& gpu_uuid) {
  return state_directory + "/gpus/" + gpu_uuid;
}

std::optional<DrainOrder> ReadDrainOrder(const std::string& folder) {
  std::string text;
  std::string unread;  // is drained all the same
  if (!ReadIfThere(DrainPath(folder), &text, &unread)) return std::nullopt;
  const Json json = Json::parse(text, nullptr, false);
  DrainOrder order;
  // It exists: the GPU is drained, only why and since when is not known.
  if (!json.is_object()) return order;
  order.since_unix_s = ValueOf<int64_t>(json, "since", 0);
  order.reason = OneLine(ValueOf<std::string>(json, "reason", ""), kMaxReasonBytes);
  return order;
}

std::string DrainReason(const std::string& folder) {
  const std::optional<DrainOrder> order = ReadDrainOrder(folder);
  if (!order) return "";
  return order->reason.empty() ? kDrainedByOperator
                               : std::string(kDrainedByOperator) + ": " + order->reason;
}

bool WriteDrainOrder(const std::string& folder, const DrainOrder& order, std::string* error) {
  DrainOrder written = order;
  // A drained GPU has been so since the first order.
  if (const auto known = ReadDrainOrder(folder); known && known->since_unix_s != 0) {
    written.since_unix_s = known->since_unix_s;
  }
  const std::string path = DrainPath(folder);
  const Json json = {{"since", written.since_unix_s}, {"reason", written.reason}};
  FileFailure failure;
  if (WriteWholeFile(path, Dump(json), 0600, &failure)) return true;
  return Fail(failure.path, "cannot be written", failure.error, error);
}

bool RemoveDrainOrder(const std::string& folder, std::string* error) {
  const std::string path = DrainPath(folder);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  return Fail(path, "cannot be removed", errno, error);
}

std::string StandingPath(const std::string& folder) { return folder + "/standing.json"; }

std::string FormatStanding(const GpuStanding& standing) {
  return Dump({{"state", kGpuStateNames[static_cast<size_t>(standing.state)]},
               {"reason", standing.reason},
               {"since", standing.since_unix_s},
               {"slots", standing.slots},
               {"slots_held", standing.held},
               {"slots_beyond", standing.beyond},
               {"slots_withheld", standing.withheld},
               {"slot_memory_promised_bytes", standing.promised_bytes},
               {"slot_memory_bytes", standing.available_bytes},
               {"index", standing.index},
               {"name", standing.name},
               {"memory_bytes", standing.memory_bytes},
               {"numa_node", standing.numa_node},
               {"sickness", standing.sickness},
               {"sickness_source", standing.sickness_source},
               {"policy_rules_impossible", standing.impossible_rules},
               {"policy_impossible", standing.impossible}});
}

std::optional<GpuStanding> ReadStanding(const std::string& folder, std::string* unread) {
  std::string text;
  std::string reason;
  const bool is_there = ReadIfThere(StandingPath(folder), &text, &reason);
  if (unread != nullptr) *unread = reason;
  if (!is_there) return std::nullopt;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const std::string state = ValueOf<std::string>(json, "state", "");
  GpuStanding standing;
  size_t i = 0;
  while (i < std::size(kGpuStateNames) && state != kGpuStateNames[i]) ++i;
  // A state of a later release, which this one could only misread.
  if (i == std::size(kGpuStateNames)) return std::nullopt;
  standing.state = static_cast<GpuState>(i);
  standing.reason = OneLine(ValueOf<std::string>(json, "reason", ""), kMaxReasonBytes);
  standing.since_unix_s = ValueOf<int64_t>(json, "since", 0);
  standing.slots = ValueOf<uint64_t>(json, "slots", 0);
  standing.held = ValueOf<uint64_t>(json, "slots_held", 0);
  standing.beyond = ValueOf<uint64_t>(json, "slots_beyond", 0);
  standing.withheld = ValueOf<uint64_t>(json, "slots_withheld", 0);
  standing.promised_bytes = ValueOf<uint64_t>(json, "slot_memory_promised_bytes", 0);
  standing.available_bytes = ValueOf<uint64_t>(json, "slot_memory_bytes", 0);
  standing.index = ValueOf<int64_t>(json, "index", -1);
  standing.name = OneLine(ValueOf<std::string>(json, "name", ""), kMaxReasonBytes);
  standing.memory_bytes = ValueOf<uint64_t>(json, "memory_bytes", 0);
  standing.numa_node = ValueOf<int64_t>(json, "numa_node", -1);
  // An older agent has written it as the reason only.
  standing.sickness =
      OneLine(ValueOf<std::string>(json, "sickness",
                                   standing.state == GpuState::kSick ? standing.reason : ""),
              kMaxReasonBytes);
  standing.sickness_source =
      OneLine(ValueOf<std::string>(json, "sickness_source", ""), kMaxReasonBytes);
  standing.impossible_rules = ValueOf<uint64_t>(json, "policy_rules_impossible", 0);
  if (const auto lines = json.find("policy_impossible"); lines != json.end() && lines->is_array()) {
    for (const Json& line : *lines) {
      if (standing.impossible.size() == kMaxImpossibleRules) break;
      if (line.is_string()) {
        standing.impossible.push_back(OneLine(line.get<std::string>(), kMaxReasonBytes));
      }
    }
  }
  return standing;
}

}  // namespace gpuloom
