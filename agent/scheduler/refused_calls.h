// SPDX-License-Identifier: Apache-2.0
// The system calls that one executor's seccomp filter refuses: the kernel suspends the caller and
// notifies us here (seccomp_unotify(2)). Each is answered EPERM at once; each number is logged
// once, because either a driver needs more than we know of or an intruder tries what is forbidden:
// as a warning, but for the two that a driver always tries. One thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

// Returns whether the descriptor is the kernel's, not one that only answers like it.
bool IsRefusedCallsDescriptor(int fd);

class RefusedCalls {
 public:
  // After this many answers the descriptor is closed, so that nobody can keep us busy: the kernel
  // then refuses by itself, with ENOSYS.
  static constexpr int kMostAnswers = 10'000;
  // Lines in the log: more numbers than our lists could have missed of a driver's.
  static constexpr size_t kMostNamed = 32;

  // `whose` stands in front of each line.
  RefusedCalls(EventLoop* loop, channel::UniqueFd descriptor, std::string whose);

 private:
  void OnEvents(uint32_t events);
  void Note(int number);
  void Close();

  // The filter's numbers are below this; see gpuloom-executor's system_calls.cc.
  static constexpr size_t kNumbers = 1024;

  channel::UniqueFd descriptor_;
  Watch watch_;
  std::string whose_;
  std::vector<uint64_t> request_;  // as large as this kernel's structures are
  std::vector<uint64_t> answer_;
  std::bitset<kNumbers> named_;
  int answers_ = 0;
};

}  // namespace gpuloom::scheduler
