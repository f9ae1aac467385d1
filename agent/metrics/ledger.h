// SPDX-License-Identifier: Apache-2.0
// What the node's tenants, namespaces, trust domains and GPUs have used, as sums that never go back. Schedulers report
// figures that begin again at 0 with each scheduler, and for each allocation; the ledger adds up what is new in them.
//
// A tenant is a container on a GPU, by name: allocations that follow one another under the same names are one. It is
// forgotten kLinger after its last allocation was seen; what its namespace has used is not (charge-back needs it), and
// goes through restarts with the rest of the ledger (ledger_file.h).
//
// What a scheduler says of names is taken over as one line of ASCII: whatever is not becomes \xNN.
//
// A value; one thread at a time. Time is an argument. docs/metrics.md says what each figure means.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

// What an allocation has used since it was added. Plain words, all of which only grow.
struct TenantCounts {
  uint64_t kernels;
  uint64_t long_kernels;
  uint64_t memory_refusals;
  uint64_t session_refusals;
  uint64_t sessions_begun;
  uint64_t faults[control::kFaults];
  control::TimeUsage time;
  control::WorkCounts work;
};

struct ExecutorCounts {
  uint64_t started;
  uint64_t failed;
  uint64_t lost;
  control::BusyTime busy;
};

struct TenantName {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string gpu_uuid;
  auto operator<=>(const TenantName&) const = default;
};

// As it is now; all zero when nobody of that name is there.
struct TenantGauges {
  uint64_t slots = 0;
  uint64_t sessions = 0;
  uint64_t memory_quota_bytes = 0;
  uint64_t memory_used_bytes = 0;
  uint64_t memory_waiting = 0;
  uint64_t unsupported_count = 0;
  bool suspended = false;
};

struct Tenant {
  TenantCounts counts{};
  TenantGauges now;
  uint64_t memory_peak_bytes = 0;
  std::string trust_domain;
  // Of proto/cuda/driver_api.def only. What else a program asked for is in `other_unsupported`: such names are the
  // program's own invention, and would be labels without end.
  std::set<std::string> unsupported;
  bool other_unsupported = false;
  Clock::Time last_seen;
};

struct NamespaceUse {
  TenantCounts counts{};
  double memory_byte_seconds = 0;
  double quota_byte_seconds = 0;
  double slot_seconds = 0;
  Clock::Time last_seen;
};

struct DomainUse {
  ExecutorCounts counts{};
  ExecutorCounts reported{};  // last, by the scheduler
  uint64_t executors = 0;
  std::string executor_version;  // of the one that serves; empty: none is ready, or it does not say
  uint64_t sessions = 0;
  uint64_t allocations = 0;
  // Sums over them.
  uint64_t slots = 0;
  uint64_t memory_promised_bytes = 0;
  uint64_t memory_used_bytes = 0;
  Clock::Time last_seen;
};

struct GpuUse {
  // What was reported last of an allocation, and whose it was.
  struct Reported {
    TenantName tenant;
    TenantCounts counts{};
  };

  bool is_answering = false;
  bool tells_gpu = false;     // it speaks control 3.3
  control::GpuState state{};  // as reported last
  std::string name, version;  // of `state`, as text
  ExecutorCounts counts{};
  uint64_t scheduler_restarts = 0;
  std::map<std::string, DomainUse> domains;
  std::map<std::string, Reported> allocations;
  Clock::Time reported_at;
};

class Ledger {
 public:
  static constexpr Clock::Duration kLinger = std::chrono::minutes(5);
  // Memory and slots are charged from one report to the next. After a longer gap nobody knows what was held, and no
  // more than this is charged.
  static constexpr Clock::Duration kLongestCharge = std::chrono::minutes(1);
  // Pods may come and go by the second, and namespaces with them: of more, those that were not seen for the longest
  // time are forgotten. Some 80 series each; what is there now always has its place (GPUs times slots).
  static constexpr size_t kMaxLingering = 1000;
  static constexpr size_t kMaxNamespaces = 1000;

  // The scheduler of this GPU has answered. `is_new_connection`: the one before may have been another scheduler's.
  void Add(const std::string& gpu_uuid, const GpuReport& report, bool is_new_connection,
           Clock::Time now);
  // It does not: what tenants hold is not known.
  void SetSilent(const std::string& gpu_uuid);
  // Forgets whom it may.
  void Forget(Clock::Time now);

  std::map<TenantName, Tenant> tenants;
  std::map<std::string, NamespaceUse> namespaces;
  std::map<std::string, GpuUse> gpus;  // by UUID

 private:
  void ChargeWhatWasHeld(const std::string& gpu_uuid, Clock::Duration held);
  void AddAllocations(const std::string& gpu_uuid, GpuUse* gpu, const GpuReport& report,
                      bool has_restarted, Clock::Time now);
  static void AddDomains(GpuUse* gpu, const GpuReport& report, bool has_restarted, Clock::Time now);
};

}  // namespace gpuloom
