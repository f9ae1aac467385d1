// SPDX-License-Identifier: Apache-2.0
// The system calls that one executor's seccomp filter refuses: the kernel suspends the caller and
// notifies us here (seccomp_unotify(2)). Each is answered EPERM at once. Each system call number is
// logged once, because either a driver needs more than we know of or an intruder tries what is
// forbidden: as a warning, except for the two that a driver always tries. Owned by Executor; the
// scheduler's thread only.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

// Returns whether the descriptor really is a seccomp listener of the kernel's, not one that only
// answers like it.
bool IsRefusedCallsDescriptor(int fd);

class RefusedCalls {
 public:
  // The descriptor is closed after this many answers, so that nobody can keep us busy: from then on
  // the kernel itself refuses, with ENOSYS.
  static constexpr int kMostAnswers = 10'000;
  // How many numbers are logged: more than our lists could lack of what a driver needs.
  static constexpr size_t kMostNamed = 32;

  // `loop` outlives this. `whose` begins each line.
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
