// SPDX-License-Identifier: Apache-2.0
#include "agent/node/refusal_file.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "agent/node/one_line.h"
#include "agent/node/whole_file.h"

namespace gpuloom {
namespace {

using Json = nlohmann::ordered_json;

// The most of a call or a reason; longer text is cut when it is read.
constexpr size_t kMaxTextBytes = 1024;
// More than 50 refusals of that length take, with what is escaped in JSON.
constexpr size_t kMaxFileBytes = 1 << 20;

}  // namespace

std::string RefusalPath(const std::string& state_directory) {
  return state_directory + "/refusals.json";
}

std::string FormatRefusals(const std::vector<KnownRefusal>& refusals) {
  Json json = Json::array();
  for (const KnownRefusal& refusal : refusals) {
    json.push_back({{"call", refusal.call},
                    {"reason", refusal.reason},
                    {"times", refusal.times},
                    {"last", refusal.last_unix_s},
                    {"namespace", refusal.pod_namespace}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<std::vector<KnownRefusal>> ReadRefusals(const std::string& state_directory,
                                                      std::string* error) {
  std::string text;
  FileFailure failure;
  if (!ReadSmallFile(RefusalPath(state_directory), kMaxFileBytes, &text, &failure)) {
    if (failure.error == ENOENT || failure.error == ENOTDIR) return std::vector<KnownRefusal>();
    *error = failure.path + ": " + failure.call + ": " + strerror(failure.error);
    return std::nullopt;
  }
  // Parsed without exceptions: text that is not JSON becomes a value that is not an array.
  const Json json = Json::parse(text, nullptr, false);
  std::vector<KnownRefusal> refusals;
  if (!json.is_array()) return refusals;
  for (const Json& one : json) {
    // An entry without these says nothing; the others are worth having. Numbers may be missing, as
    // in a file of another release.
    if (!one.is_object() || !one.contains("call") || !one["call"].is_string() ||
        !one.contains("reason") || !one["reason"].is_string()) {
      continue;
    }
    KnownRefusal refusal;
    refusal.call = OneLine(one["call"].get<std::string>(), kMaxTextBytes);
    refusal.reason = OneLine(one["reason"].get<std::string>(), kMaxTextBytes);
    if (one.contains("times") && one["times"].is_number_unsigned()) refusal.times = one["times"];
    if (one.contains("last") && one["last"].is_number_integer()) refusal.last_unix_s = one["last"];
    if (one.contains("namespace") && one["namespace"].is_string()) {
      refusal.pod_namespace = OneLine(one["namespace"].get<std::string>(), kMaxTextBytes);
    }
    refusals.push_back(std::move(refusal));
  }
  return refusals;
}

}  // namespace gpuloom
