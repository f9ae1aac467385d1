// SPDX-License-Identifier: Apache-2.0
// Since when the kubelet that runs has been running, as far as agents have seen it, kept in the state
// directory: a new agent knows a kubelet that an earlier one has met. Used from one thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "agent/clock.h"

namespace gpuloom {

class KubeletRecord {
 public:
  explicit KubeletRecord(const std::string& state_directory)
      : path_(state_directory + "/kubelet.yaml") {}

  // `id` tells one start of the kubelet from the next. Returns when it was seen first; `now` when
  // that is not known. Fails when it cannot be written down: the next agent will take it for new.
  absl::StatusOr<Clock::Time> FirstSeen(const std::string& id, Clock::Time now) const;

 private:
  const std::string path_;
};

}  // namespace gpuloom
