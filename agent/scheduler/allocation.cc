// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/allocation.h"

#include <algorithm>

#include "proto/control/connection.h"

namespace gpuloom::scheduler {
namespace {

// Whether the numbers can be a policy's; 0 stands for what it does not say (agent/arbiter/terms.h).
// The agent has checked them, but may be of another release.
bool AreTerms(const control::ShareTerms& shares) {
  constexpr uint32_t kLargestWeight = 1000, kLowest = 3, kAllPermille = 1000;
  return shares.namespace_weight <= kLargestWeight && shares.weight <= kLargestWeight &&
         shares.priority <= kLowest && shares.namespace_time_permille <= kAllPermille &&
         shares.time_permille <= kAllPermille;
}

bool ArePercent(const control::PartitionTerms& terms) {
  constexpr uint32_t kAll = 100;
  return terms.namespace_sm_percent <= kAll && terms.namespace_sm_reserved <= kAll &&
         terms.sm_percent <= kAll && terms.sm_reserved <= kAll;
}

}  // namespace

bool Usage::Charge(uint64_t bytes) {
  if (bytes > free_bytes()) {
    ++refused_count_;
    return false;
  }
  used_bytes_ += bytes;
  // For Undo: a charge for memory that the device then had no room for never was a peak.
  peak_before_charge_ = peak_bytes_;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return true;
}

// Without a look at the quota: the memory is there already, and refusing to count it would hide it.
void Usage::ChargeAnyway(uint64_t bytes) {
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

void Usage::Undo(uint64_t bytes) {
  Discharge(bytes);
  peak_bytes_ = std::max(peak_before_charge_, used_bytes_);
}

// Clamped, so that a count that is wrong somewhere cannot become a quota without end.
void Usage::Discharge(uint64_t bytes) { used_bytes_ -= std::min(used_bytes_, bytes); }

bool Allocation::NoteUnsupported(std::string name_untrusted) {
  constexpr size_t kMaxNames = 64;
  // What an executor sends goes to logs and to the operator's terminal.
  for (char& c : name_untrusted) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain && c != '_' && c != '-' && c != ' ') c = '?';
  }
  // A full list stays as it is, because tenants choose the names.
  if (name_untrusted.empty() || unsupported.size() == kMaxNames ||
      std::find(unsupported.begin(), unsupported.end(), name_untrusted) != unsupported.end()) {
    return false;
  }
  unsupported.push_back(std::move(name_untrusted));
  return true;
}

bool Bind(const control::BindAllocation& message, Allocation* allocation, std::string* error) {
  const Identity identity{control::TextOf(message.pod_namespace), control::TextOf(message.pod),
                          control::TextOf(message.pod_uid), control::TextOf(message.container)};
  if (identity.pod_namespace.empty() || identity.pod.empty()) {
    *error = "allocation " + allocation->name + ": namespace and pod must be named";
    return false;
  }
  // Everything is judged before anything is changed: a message that is refused leaves the
  // allocation as it was.
  const std::string trust_domain = control::TextOf(message.trust_domain);
  if (trust_domain.empty()) {
    *error = "allocation " + allocation->name + ": trust domain must be named";
    return false;
  }
  if (message.memory_quota_bytes < kGranuleBytes) {
    *error = "allocation " + allocation->name + ": memory quota is below the 2 MiB granule";
    return false;
  }
  // The directory's owner is fixed once it is known. An agent that mixed up two allocations must
  // not give one pod the other's socket, memory or traces.
  if (allocation->bound && !(identity == allocation->identity)) {
    *error = "allocation " + allocation->name + " belongs to " + allocation->identity.Label() +
             " (pod uid " + allocation->identity.pod_uid + "), not to " + identity.Label() +
             " (pod uid " + identity.pod_uid + "): remove it first";
    return false;
  }
  if (!AreTerms(message.shares)) {
    *error = "allocation " + allocation->name +
             ": weights are 1 to 1000, priorities 1 to 3, ceilings at most 1000 permille, and 0 "
             "where the policy does "
             "not say";
    return false;
  }
  if (!ArePercent(message.partition)) {
    *error =
        "allocation " + allocation->name +
        ": multiprocessors are limited and reserved by at most 100 percent, and 0 where the policy "
        "does not say";
    return false;
  }
  // Bounds what a program's call can wait for, and the arithmetic with it, to an hour.
  constexpr uint32_t kLongestWaitMs = 3'600'000;
  if (message.memory_wait_ms > kLongestWaitMs) {
    *error = "allocation " + allocation->name + ": memory may be waited for an hour at most";
    return false;
  }
  constexpr uint32_t kLongestKernelMs = 3'600'000;
  if (message.kernels.warn_after_ms > kLongestKernelMs ||
      message.kernels.end_after_ms > kLongestKernelMs) {
    *error = "allocation " + allocation->name +
             ": limits of a kernel's time are an hour at most, and 0 where there is none";
    return false;
  }
  if (message.trace >= control::kTraceTerms) {
    *error = "allocation " + allocation->name + ": " + std::to_string(message.trace) +
             " says nothing about traces";
    return false;
  }
  allocation->bound = true;
  allocation->identity = identity;
  allocation->trust_domain = trust_domain;
  allocation->pinned_limit_bytes = message.pinned_limit_bytes;
  allocation->shares = message.shares;
  allocation->memory_wait = std::chrono::milliseconds(message.memory_wait_ms);
  allocation->kernels = message.kernels;
  allocation->rescue_after_ms = message.rescue_after_ms;
  allocation->trace = static_cast<control::TraceTerms>(message.trace);
  allocation->partition = message.partition;
  // Applies to later requests; sessions that hold more keep it.
  allocation->usage.SetQuota(message.memory_quota_bytes);
  return true;
}

}  // namespace gpuloom::scheduler
