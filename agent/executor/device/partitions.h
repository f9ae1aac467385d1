// SPDX-License-Identifier: Apache-2.0
// Which of the device's multiprocessors the allocations of this trust domain may use (the policy's
// smPercent and smReserved; docs/design/sm-partitions.md). agent/arbiter/sm_division.h decides;
// this creates the partitions, green contexts, that its decisions name. Each is made once, in a
// quiet moment, and never destroyed, because the driver would keep its 4 MiB (green_context.h);
// they come out of the reserve, not out of a tenant's quota.
//
// Owned by the loop; outlives the sessions, which follow it (SessionPort::context). Ring thread
// only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/arbiter/sm_division.h"
#include "agent/executor/device/green_context.h"
#include "proto/control/messages.h"

namespace gpuloom::executor {

class Quiet;
class SchedulerLink;

struct Partition {
  arbiter::SmGroups groups = 0;
  uint32_t multiprocessors = 0;
  MadeGreen made;
  // Never launched in: tells the driver which multiprocessors a question is about.
  CUstream stream = nullptr;
  enum class State : uint8_t { kMaking, kMade, kFailed, kTooMany } state = State::kMaking;

  bool HasFailed() const { return state == State::kFailed || state == State::kTooMany; }
};

class Partitions {
 public:
  // Requests for more than these different ones are refused: they take 256 MiB of device memory.
  static constexpr uint32_t kMaxPartitions = 64;

  // `scheduler`: is told whose terms cannot be kept now (PartitionPending).
  Partitions(Device* device, Quiet* quiet, SchedulerLink* scheduler)
      : device_(device), quiet_(quiet), scheduler_(scheduler) {}
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;

  // Asks the driver how it divides the device. Call once, before sessions begin.
  void Start();

  // A session of the allocation begins. Returns false with a message if its terms cannot be kept
  // here; then nothing has changed.
  [[nodiscard]] bool Begin(const control::AddSession& order, std::string* error);
  // A session of the allocation ends.
  void End(uint64_t allocation_id);
  // Terms that do not fit are logged as an error, and told to the scheduler. The allocation keeps
  // what it has, and they are tried again whenever something else changes.
  void Set(const control::SetShares& order);

  // Where kernels of the allocation that are submitted after this call are to run. nullptr: on the
  // whole device.
  const Partition* Of(uint64_t allocation_id) const;
  // How many multiprocessors the allocation's processes see; 0: all.
  uint32_t Multiprocessors(uint64_t allocation_id) const;
  // Grows when Of, or the state of what it returns, may have changed.
  uint32_t changes() const { return changes_; }

 private:
  struct Allocation {
    uint64_t name_space;
    std::string label;        // for the log
    arbiter::SmTerms wanted;  // the policy's; the claim has those in force
    arbiter::SmClaim claim;
    uint32_t sessions = 0;
    Partition* partition = nullptr;
    std::string pending;  // why it does not have what it wants, as the log and the scheduler know
  };
  struct Namespace {
    arbiter::SmTerms wanted;
    arbiter::SmClaim claim;
    uint32_t allocations = 0;
  };

  void Want(Allocation* allocation, const control::PartitionTerms& terms);
  bool HasWhatItWants(const Allocation& allocation) const;
  // Brings the wanted terms into force that fit, and each allocation to its part.
  void Follow();
  // The terms of some allocations and their namespaces, all or none. Returns true if any changed.
  template <typename F>
  bool Adopt(F&& concerns);
  // Divides the device anew by the terms in force. Returns false if a reservation does not fit;
  // then nothing has changed.
  [[nodiscard]] bool Divide();
  void Place();
  // Empty: it has what it wants.
  std::string WhyPending(const Allocation& allocation) const;
  void ReportChanges();
  void Forget(uint64_t allocation_id);
  // Null: the whole device. One that cannot be made, or of which there may be no more, has failed.
  Partition* Find(arbiter::SmGroups groups);
  void Make(Partition* partition);

  Device* const device_;
  Quiet* const quiet_;
  SchedulerLink* const scheduler_;
  arbiter::SmLayout layout_;  // without groups if the driver cannot divide the device
  // By the scheduler's numbers, which grow: so in order of arrival.
  std::map<uint64_t, Namespace> namespaces_;
  std::map<uint64_t, Allocation> allocations_;
  std::map<arbiter::SmGroups, std::unique_ptr<Partition>> made_;
  bool tells_scheduler_ = false;
  uint32_t begun_ = 0;  // partitions that are made, or being made
  uint32_t changes_ = 1;
};

}  // namespace gpuloom::executor
