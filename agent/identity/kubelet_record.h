// SPDX-License-Identifier: Apache-2.0
// Remembers in the state directory when the running kubelet was first seen, so that a new agent recognises a kubelet
// that an earlier agent has seen. Owned by the node agent and outlives the allocator that asks it; used from one
// thread. Has no state but the file's path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "agent/clock.h"

namespace gpuloom {

class KubeletRecord {
 public:
  explicit KubeletRecord(const std::string& state_directory)
      : path_(state_directory + "/kubelet.yaml") {}

  // `id` distinguishes the kubelet's starts. Returns when this start was first seen; `now` if that is not known. Fails
  // when it cannot be recorded: the next agent will then take the kubelet for new.
  absl::StatusOr<Clock::Time> FirstSeen(const std::string& id, Clock::Time now) const;

 private:
  const std::string path_;
};

}  // namespace gpuloom
