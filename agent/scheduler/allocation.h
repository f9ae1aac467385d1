// SPDX-License-Identifier: Apache-2.0
// An allocation: one Allocate call of the kubelet (or one `gpuloom run`), with its identity, its
// limits and its usage. Usage belongs to the allocation, not to its sessions: all processes that
// connect through its socket share one quota. Plain bookkeeping; the scheduler's thread only.
//
// Held by shared_ptr: a draining session keeps the allocation it is charged to, even after the
// allocation has been removed.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/node/line_budget.h"
#include "agent/scheduler/address_share.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

// The driver creates physical memory in granules of this size, so it is the unit of quota.
inline constexpr uint64_t kGranuleBytes = uint64_t{2} << 20;

struct Identity {
  std::string pod_namespace;
  std::string pod;
  std::string pod_uid;
  std::string container;

  bool operator==(const Identity&) const = default;
  std::string Label() const { return pod_namespace + "/" + pod + "/" + container; }
};

// Sum of what an allocation's sessions hold.
class Usage {
 public:
  uint64_t quota_bytes() const { return quota_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  uint64_t refused_count() const { return refused_count_; }
  uint64_t free_bytes() const {
    return used_bytes_ < quota_bytes_ ? quota_bytes_ - used_bytes_ : 0;
  }

  // Applies to later requests; nothing is taken away.
  void SetQuota(uint64_t bytes) { quota_bytes_ = bytes / kGranuleBytes * kGranuleBytes; }

  // Returns false, and counts the refusal, if the quota does not allow it.
  [[nodiscard]] bool Charge(uint64_t bytes);
  // Charges memory that is already held, so that a refusal would only hide it.
  void ChargeAnyway(uint64_t bytes);
  // Reverts the latest charge, for memory that could not be allocated: the peak shows nothing of it.
  void Undo(uint64_t bytes);
  void Discharge(uint64_t bytes);

 private:
  uint64_t quota_bytes_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  uint64_t peak_before_charge_ = 0;
  uint64_t refused_count_ = 0;
};

struct Allocation {
  uint64_t id = 0;  // never reused
  std::string name;
  std::string directory;
  uint32_t slots = 0;
  uint64_t owner = 0;  // the control connection that it ends with; 0: it outlives its creator
  bool removed = false;

  bool bound = false;
  Identity identity;
  std::shared_ptr<const uint64_t> namespace_id;  // Shares::NumberOfNamespace's, once bound
  std::string trust_domain;
  uint64_t pinned_limit_bytes = 0;
  control::ShareTerms shares{};
  control::PartitionTerms partition{};
  std::chrono::milliseconds memory_wait{0};  // how long it may wait for others' memory
  control::KernelTerms kernels{};
  uint32_t rescue_after_ms = 0;  // as in control::BindAllocation
  control::TraceTerms trace = control::TraceTerms::kNone;
  std::chrono::steady_clock::time_point next_trace{};  // when it may trace its own work again
  bool suspended = false;

  LineBudget lines;          // log budget for what its tenants cause
  LineBudget fault_lines;    // another one for how sessions end: looping refusals do not hide that
  LineBudget refusal_lines;  // and for refusals: programs that come and go do not hide these
  Usage usage;
  AddressShare device_addresses;
  AddressShare host_addresses;
  uint32_t session_count = 0;
  uint64_t kernels_of_ended_sessions = 0;
  control::TimeUsage time_of_ended_sessions{};
  control::WorkCounts work_of_ended_sessions{};
  uint64_t sessions_begun = 0;
  uint64_t sessions_refused = 0;
  uint64_t long_kernels = 0;
  std::array<uint64_t, control::kFaults> faults = {};  // by control::Fault
  std::string latest_fault;                            // how its latest faulted session ended
  std::string latest_refusal;                          // why its latest refused session was refused
  std::string pending_partition;                       // control::AllocationState's
  uint64_t pending_partitions = 0;
  std::vector<std::string> unsupported;  // unsupported CUDA features that were requested, each once

  // Returns false if the name is already known or the list is full. Characters that a name may not
  // have become '?'.
  bool NoteUnsupported(std::string name_untrusted);

  // "namespace/pod/container", or the allocation's name before it is bound.
  std::string Label() const { return bound ? identity.Label() : "allocation " + name; }
};

using AllocationPtr = std::shared_ptr<Allocation>;

// Applies the message to a live allocation. Returns false with a message, and changes nothing, if a
// value is out of range or the allocation would change its identity.
[[nodiscard]] bool Bind(const control::BindAllocation& message, Allocation* allocation,
                        std::string* error);

}  // namespace gpuloom::scheduler
