// SPDX-License-Identifier: Apache-2.0
// Keeps the requests that the kubelet was refused across restarts of the agent (agent/node/refusal_file.h). Owned by
// NodeAgent; used from one thread. A file that cannot be written, or not be read at first, is logged, and tried again at later
// looks: what an earlier agent has kept is not written over.
#pragma once

#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/node/refusal_file.h"
#include "agent/plugin/refused_requests.h"

namespace gpuloom {

class RefusalLog {
 public:
  // As many as people read, for several runs of the agent.
  static constexpr size_t kMostKept = 50;
  // From one writing to the next, which is an fsync on the agent's loop: pods that are refused can be
  // made without end.
  static constexpr Clock::Duration kPause = std::chrono::seconds(5);

  explicit RefusalLog(std::string state_directory) : state_directory_(std::move(state_directory)) {}

  // `latest` since this agent began. Writes the file when there is something new: at once, or kPause
  // after it did so last.
  void Look(const std::vector<RefusedRequest>& latest, Clock::Time now);

  // Writes what has not been written, for an agent that ends.
  void Flush();

 private:
  bool AddEarlier();
  void Take(const std::vector<RefusedRequest>& latest, Clock::Time now);
  void Cut();

  const std::string state_directory_;
  bool has_earlier_ = false;  // known_ has what was kept before
  std::string last_trouble_;  // each is logged once
  std::vector<RefusedRequest> seen_;
  std::vector<KnownRefusal> known_;  // the latest first
  bool is_written_ = true;           // known_ is
  Clock::Time next_write_;
};

}  // namespace gpuloom
