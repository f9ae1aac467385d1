// SPDX-License-Identifier: Apache-2.0
// Reports kernels that run for long to the scheduler, where the policy has a limit for them
// (control::KernelTerms): whose they are, for how long they have run at the least, and the name of
// their function. The scheduler decides what happens (docs/design/sharing-time.md).
//
// Launches that went to the device together are reported as one, with their number, and a graph as
// one launch: nothing shows which of its kernels runs. Work that waits for a word or a host
// function is not at the device, so it is not counted as a kernel.
//
// Owned by the loop; ring thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/arbiter/kernel_watch.h"
#include "agent/executor/session/scheduler_link.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

class Device;
class Session;

// What is at the head of one of a session's streams.
struct HeadOfStream {
  arbiter::AtHead work;
  uint32_t launches = 0;
  CUkernel kernel = nullptr;  // of the first launch; null: it is not a kernel
};

class LongKernels {
 public:
  // Called when the policy does not let the session's kernel run any longer, with a text for its
  // program.
  using OnTooLong = std::function<void(uint64_t session_id, std::string_view text)>;

  // The pointers outlive this.
  LongKernels(Device* device, SchedulerLink* scheduler, OnTooLong on_too_long)
      : device_(device), scheduler_(scheduler), on_too_long_(std::move(on_too_long)) {}

  using Sessions = std::span<const std::unique_ptr<Session>>;
  // Call in each round of the loop, after completions have been seen.
  void Look(Sessions sessions, uint64_t now_ns) {
    if (now_ns - last_poll_ns_ >= kPollIntervalNs) PollAll(sessions, now_ns);
  }

  static constexpr uint64_t kPollIntervalNs = 50'000'000;
  // Kernels of this age are reported, and again at this interval: the shortest limit that a policy
  // can set.
  static constexpr uint64_t kLongNs = 1'000'000'000;

 private:
  void PollAll(Sessions sessions, uint64_t now_ns);
  void Report(uint64_t session_id, const HeadOfStream& head, uint64_t ran_ns);

  Device* const device_;
  SchedulerLink* const scheduler_;
  const OnTooLong on_too_long_;
  uint64_t last_poll_ns_ = 0;
  arbiter::KernelWatch watch_;
  // By session: the age at which the watched kernel was reported.
  std::unordered_map<uint64_t, uint64_t> last_reported_ns_;
  // Used by PollAll.
  std::vector<HeadOfStream> heads_;
  std::vector<arbiter::AtHead> work_;
};

}  // namespace gpuloom::executor
