// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/kubelet_record.h"

#include <yaml-cpp/yaml.h>

#include "agent/cat.h"
#include "agent/identity/state_file.h"

namespace gpuloom {

absl::StatusOr<Clock::Time> KubeletRecord::FirstSeen(const std::string& id, Clock::Time now) const {
  if (const absl::StatusOr<std::string> text = ReadStateFile(path_); text.ok()) {
    try {
      const YAML::Node root = YAML::Load(*text);
      const Clock::Time seen{Clock::Duration(root["firstSeenMs"].as<int64_t>())};
      // A time in the future was written before a reboot that lost the date, and would keep the
      // kubelet new for as long as that lasts.
      if (root["kubelet"].as<std::string>() == id && seen <= now) return seen;
    } catch (const YAML::Exception&) {
      // Treated as absent, so that it is written anew.
    }
  }
  const auto millis = std::chrono::duration_cast<Clock::Duration>(now.time_since_epoch());
  if (absl::Status status =
          WriteStateFile(path_, Cat("kubelet: \"", id, "\"\nfirstSeenMs: ", millis.count(), "\n"));
      !status.ok()) {
    return status;
  }
  return now;
}

}  // namespace gpuloom
