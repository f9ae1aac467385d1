// SPDX-License-Identifier: Apache-2.0
// An allocation: one Allocate of the kubelet (or one `gpuloom run`), who it is, what it may take
// and what it has taken. Usage belongs to the allocation, not to its sessions: a quota is shared by
// all processes that connect through its socket. Plain bookkeeping, one thread.
//
// Allocations are held by shared_ptr: a session that is still draining keeps the allocation it is
// charged to, also when the allocation has been removed meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/node/line_budget.h"
#include "agent/scheduler/address_share.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

// The driver makes physical memory in granules of this size, so it is the unit of quota.
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

  // Takes effect for what is asked for from now on; nothing is taken away.
  void SetQuota(uint64_t bytes) { quota_bytes_ = bytes / kGranuleBytes * kGranuleBytes; }

  // False, and counted, when the quota does not allow it.
  [[nodiscard]] bool Charge(uint64_t bytes);
  // What is held already and cannot be refused.
  void ChargeAnyway(uint64_t bytes);
  // What was charged but could not be had: leaves no trace in the peak.
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
  std::string name;
  std::string directory;
  uint32_t slots = 0;
  uint64_t owner = 0;  // control connection whose end ends it; 0: outlives its maker
  bool removed = false;

  bool bound = false;
  Identity identity;
  std::string trust_domain;
  uint64_t pinned_limit_bytes = 0;

  LineBudget lines;  // of the log, that its tenants cause
  Usage usage;
  AddressShare device_addresses;
  AddressShare host_addresses;
  uint32_t session_count = 0;
  uint64_t kernels_of_ended_sessions = 0;
  std::vector<std::string> unsupported;  // what was asked of CUDA in vain, each once

  // False: it is known, or there are too many. Other characters than a name's become '?'.
  bool NoteUnsupported(std::string name_untrusted);

  // "namespace/pod/container", or the name before anybody knows whose it is.
  std::string Label() const { return bound ? identity.Label() : "allocation " + name; }
};

// Refuses, with a message, what would change an allocation's identity; otherwise updates it live.
[[nodiscard]] bool Bind(const control::BindAllocation& message, Allocation* allocation,
                        std::string* error);

}  // namespace gpuloom::scheduler
