// SPDX-License-Identifier: Apache-2.0
// An allocation: one Allocate call of the kubelet (or one `gpuloom run`), with its identity, its
// limits and its usage. Usage belongs to the allocation, not to its sessions: all processes that
// connect through its socket share one quota. Plain bookkeeping, one thread.
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
  // For memory that is held already and cannot be refused.
  void ChargeAnyway(uint64_t bytes);
  // Reverts a charge for what could not be allocated: leaves no trace in the peak.
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
  uint64_t id = 0;  // never given to another
  std::string name;
  std::string directory;
  uint32_t slots = 0;
  uint64_t owner = 0;  // control connection whose end ends it; 0: outlives its maker
  bool removed = false;

  bool bound = false;
  Identity identity;
  std::shared_ptr<const uint64_t> namespace_id;  // Scheduler::NumberOfNamespace's, once bound
  std::string trust_domain;
  uint64_t pinned_limit_bytes = 0;
  control::ShareTerms shares{};
  control::PartitionTerms partition{};
  std::chrono::milliseconds memory_wait{0};  // for others' memory
  control::KernelTerms kernels{};
  uint32_t rescue_after_ms = 0;  // as in control::BindAllocation
  control::TraceTerms trace = control::TraceTerms::kNone;
  std::chrono::steady_clock::time_point next_trace{};  // when it may trace itself again
  bool suspended = false;

  LineBudget lines;        // log budget for what its tenants cause
  LineBudget fault_lines;  // the same for how they end: refusals in a loop do not hide that
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
  std::string latest_fault;              // what its latest session that faulted has ended by
  std::string latest_refusal;            // why its latest session that was refused was not let in
  std::vector<std::string> unsupported;  // unsupported CUDA features that were requested, each once

  // Returns false if it is known already, or there are too many. Characters not allowed in a name
  // become '?'.
  bool NoteUnsupported(std::string name_untrusted);

  // "namespace/pod/container", or the allocation's name before it is bound.
  std::string Label() const { return bound ? identity.Label() : "allocation " + name; }
};

// Refuses, with a message, to change an allocation's identity; otherwise updates it live.
[[nodiscard]] bool Bind(const control::BindAllocation& message, Allocation* allocation,
                        std::string* error);

}  // namespace gpuloom::scheduler
