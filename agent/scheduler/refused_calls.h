// SPDX-License-Identifier: Apache-2.0
// The system calls that one executor's filter refuses: the kernel holds the caller and tells us here
// (seccomp_unotify(2)). Each is answered EPERM at once; each number is logged once, because it means
// that a driver needs more than we know of, or that somebody tries what is forbidden: a warning, but for
// the two that a driver always tries. One thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

// Whether the descriptor is the kernel's, and not one that only answers like it.
bool IsRefusedCallsDescriptor(int fd);

class RefusedCalls {
 public:
  // Beyond these answers the descriptor is closed, so that nobody keeps us busy by asking: the
  // kernel then refuses by itself, with ENOSYS.
  static constexpr int kMostAnswers = 10'000;
  // Lines in the log: more numbers than a driver could have escaped our lists with.
  static constexpr size_t kMostNamed = 32;

  // `whose` stands in front of each line.
  RefusedCalls(EventLoop* loop, channel::UniqueFd descriptor, std::string whose);

 private:
  void OnEvents(uint32_t events);
  void Note(int number);
  void Close();

  // The filter's numbers end below; see gpuloom-executor's system_calls.cc.
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
