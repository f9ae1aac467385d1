// SPDX-License-Identifier: Apache-2.0
// This executor's turns at the device, which it shares with the executors of other trust domains: notifies the
// scheduler of which allocations want the device and who has used it, and when a turn that was ended has drained. A turn is
// for kernels; copies between host and device need none.
// TimeSharing decides what is submitted within a turn. docs/design/sharing-time.md.
//
// An executor that is alone on its device has an endless turn, and sends nothing: until the scheduler's first order,
// Look returns at once.
//
// Owned by the loop; ring thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/arbiter/patience.h"
#include "agent/executor/session/scheduler_link.h"

namespace gpuloom::executor {

class Session;
class TimeSharing;

class Turns {
 public:
  // Both outlive it.
  Turns(TimeSharing* sharing, SchedulerLink* scheduler)
      : sharing_(sharing), scheduler_(scheduler) {}

  void Give(const control::GiveTurn& order);
  // Answered with `request` when nothing is at the device.
  void End(uint32_t request);

  using Sessions = std::span<const std::unique_ptr<Session>>;
  // Call at the end of each round of the loop, when what was read in it waits or is at the device.
  void Look(Sessions sessions, uint64_t now_ns);
  // Call about once a second; Look does it more often where it matters: reports which allocations have used the device.
  void SendUsage();
  // When Look may have something to send without an event; UINT64_MAX: never.
  uint64_t wake_at_ns() const { return wake_at_ns_; }
  // An allocation wants the device, and another domain has the turn.
  bool waits() const { return waits_; }

  // A turn that others wait for, or may soon, is given up when there has been no work for as long as the allocation's
  // Patience says, which lies between these.
  static constexpr uint64_t kLeastIdleNs = 50'000;
  static constexpr uint64_t kIdleNs = 250'000;
  // A turn that no other domain has waited for lately is kept through the pauses of a program, so that these cost no
  // messages to the scheduler.
  static constexpr uint64_t kLongIdleNs = 20'000'000;
  static constexpr uint64_t kOthersLingerNs = 100'000'000;
  // How often a turn that others wait for says who uses it. It is divided as was said last, so an account that is as old as
  // a turn is long would be that of other work.
  static constexpr uint64_t kUsagePeriodNs = 2'000'000;

 private:
  struct Allocation {
    uint64_t id = 0;  // 0: none
    bool working = false;
    bool was_working = false;
    uint64_t computed_ns = 0;  // when it last had a kernel
    uint64_t worked_ns = 0;  // when it last worked: that, or shortly after it it has sent something
    uint64_t had_worked_ns = 0;  // the same, as of the previous round
    bool wants = false;          // as the scheduler knows it
    uint64_t used_ns = 0;        // what the scheduler does not know yet
    arbiter::Patience patience{kLeastIdleNs, kIdleNs};
  };

  void Note(Session* session, uint64_t now_ns);
  void SendWants(uint64_t now_ns);
  bool MustSendUsage() const;

  TimeSharing* sharing_;
  SchedulerLink* scheduler_;
  bool shares_device_ = false;  // some order has come
  bool has_turn_ = true;
  // When another domain last had the turn, or waited for it, as far as the orders show.
  uint64_t others_ns_ = 0;
  std::optional<uint32_t> drains_;  // the EndTurn that is to be answered
  bool waits_ = false;
  uint64_t wake_at_ns_ = UINT64_MAX;
  uint64_t last_usage_ns_ = 0;           // when it last said who uses the turn, while it had it
  std::vector<Allocation> allocations_;  // by TimeSharing's number, which may be reused
  std::vector<control::AllocationUse> left_;  // what allocations that are gone have used
};

}  // namespace gpuloom::executor
