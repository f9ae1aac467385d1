// SPDX-License-Identifier: Apache-2.0
// What the node's tenants, namespaces, trust domains and GPUs have used, as sums that never decrease. Schedulers report
// figures that start at 0 with each scheduler and each allocation; the ledger adds up the increases.
//
// A tenant is a container on a GPU, by name: successive allocations with the same names are one tenant. It is forgotten
// kLinger after its last allocation was seen; what its namespace has used is not (charge-back needs it), and is kept
// across restarts with the rest of the ledger (ledger_file.h).
//
// Names that a scheduler reports become one line of ASCII: other bytes become \xNN.
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

// What an allocation has used since it was added. Plain integers, all of which only grow.
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

// Present values; all zero if there is no tenant of that name.
struct TenantGauges {
  uint64_t slots = 0;
  uint64_t sessions = 0;
  uint64_t memory_quota_bytes = 0;
  uint64_t memory_used_bytes = 0;
  uint64_t memory_waiting = 0;
  uint64_t unsupported_count = 0;
  bool suspended = false;
  bool partition_pending = false;
};

struct Tenant {
  TenantCounts counts{};
  TenantGauges now;
  uint64_t memory_peak_bytes = 0;
  std::string trust_domain;
  // Only names from proto/cuda/driver_api.def. Other names set `other_unsupported`: a program can invent any number of
  // them, and each would be a label.
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
  ExecutorCounts reported{};  // the scheduler's last report
  uint64_t executors = 0;
  std::string
      executor_version;  // of the executor that serves; empty: none is ready, or it is unknown
  uint64_t sessions = 0;
  uint64_t allocations = 0;
  uint64_t overrun_wait_ns = 0;
  // Sums over the allocations.
  uint64_t slots = 0;
  uint64_t memory_promised_bytes = 0;
  uint64_t memory_used_bytes = 0;
  Clock::Time last_seen;
};

struct GpuUse {
  // What was last reported about an allocation, and its tenant.
  struct Reported {
    TenantName tenant;
    TenantCounts counts{};
  };

  bool is_answering = false;
  bool tells_gpu = false;     // the scheduler speaks control 3.3
  control::GpuState state{};  // as last reported
  std::string name, version;  // from `state`, as text
  ExecutorCounts counts{};
  uint64_t scheduler_restarts = 0;
  std::map<std::string, DomainUse> domains;
  std::map<std::string, Reported> allocations;
  Clock::Time reported_at;
};

struct ReportAt {
  GpuReport report;
  Clock::Time at;
};

class Ledger {
 public:
  static constexpr Clock::Duration kLinger = std::chrono::minutes(5);
  // Memory and slots are charged for the time from one report to the next. After a longer gap it is unknown what was
  // held, and only this much time is charged.
  static constexpr Clock::Duration kLongestCharge = std::chrono::minutes(1);
  // Pods, and namespaces with them, may come and go by the second: above these numbers, those that were not seen for
  // the longest time are forgotten. Each has some 80 series; present tenants (at most GPUs times slots) are never
  // forgotten.
  static constexpr size_t kMaxLingering = 1000;
  static constexpr size_t kMaxNamespaces = 1000;

  // Adds an answer of this GPU's scheduler. `is_new_connection`: the previous answer may be another scheduler's.
  void Add(const std::string& gpu_uuid, const GpuReport& report, bool is_new_connection,
           Clock::Time now);
  // Goes on with what `meanwhile` has counted while this ledger could not be read. `first`: each GPU's report with which
  // that one began, and whose figures this one may have counted before.
  void Continue(const std::map<std::string, ReportAt>& first, const Ledger& meanwhile);
  // The scheduler does not answer: it is unknown what tenants hold.
  void SetSilent(const std::string& gpu_uuid);
  // Forgets tenants and namespaces that may be forgotten.
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
