// SPDX-License-Identifier: Apache-2.0
// Polls the driver for faults on a thread of its own, one poll at a time: a driver that hangs holds up that thread and nobody
// else. Used by one thread.
//
// The destructor waits for kEndPatience at most. A thread that the driver holds even then is left behind, which the log says: it
// owns all that it uses, the poll and its open NVML, and ends when the driver lets it, or with the process.
//
//   FaultPoll poll([watch = std::make_shared<FaultWatch>(uuids, library)] { return watch->Look(); });
//   const auto faults = poll.Poll(std::chrono::seconds(1));
//   if (!faults) …  // it hangs, or takes longer: a later call has the result
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "agent/inventory/fault_watch.h"

namespace gpuloom {

class FaultPoll {
 public:
  // An NVML that is closed in order takes some milliseconds; whoever ends an agent has 15 s (the chart).
  static constexpr std::chrono::milliseconds kEndPatience{2000};

  // `poll` is called, and destroyed, on the thread.
  explicit FaultPoll(std::function<std::vector<GpuFault>()> poll);
  FaultPoll(const FaultPoll&) = delete;
  FaultPoll& operator=(const FaultPoll&) = delete;
  ~FaultPoll();

  // Begins a poll unless one is under way, or its result has not been taken, and waits for the end, for `patience` at most.
  // Nothing: it has not ended.
  std::optional<std::vector<GpuFault>> Poll(std::chrono::milliseconds patience);

  // Whether any thread of this process is left behind. It may hold a lock that NVML's own end waits for, so such a process ends by
  // _exit. Safe from any thread.
  static bool IsOneLeftBehind();

 private:
  struct State;
  static void Run(State* state, std::function<std::vector<GpuFault>()> poll);

  const std::shared_ptr<State> state_;  // the thread's, too
  std::thread thread_;
};

}  // namespace gpuloom
