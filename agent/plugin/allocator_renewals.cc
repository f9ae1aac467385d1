// SPDX-License-Identifier: Apache-2.0
// What pods that run are granted anew: by a scheduler that comes back, after a change of policy.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <iterator>

#include "agent/cat.h"
#include "agent/node/size.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/grant.h"
#include "agent/policy/capacity.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

std::string KeepsOldGrant(const Allocation& allocation, const absl::Status& status) {
  return Cat("policy: ", Describe(allocation.binding->owner),
             " keeps its old grant: ", std::string(status.message()));
}

// If the grant is the one already recorded, there is no older one to keep: the scheduler has what
// it last accepted, if anything.
std::string DescribeRefusal(const Allocation& renewed, const Allocation& before,
                            const absl::Status& status) {
  if (renewed.binding != before.binding) return KeepsOldGrant(before, status);
  return Cat("policy: ", Describe(renewed.binding->owner),
             " is refused its grant: ", std::string(status.message()));
}

}  // namespace

// Called by the supervisor before the client is given out, so no other thread uses this connection
// yet. Another agent may speak to the same scheduler over its own.
absl::Status Allocator::Restore(const std::string& gpu_uuid, SchedulerClient* scheduler) {
  const auto gate = gates_.find(gpu_uuid);
  if (gate == gates_.end()) {
    return absl::NotFoundError(Cat("inventory: GPU ", gpu_uuid, " is no longer on this node"));
  }
  // Without a policy in force what runs keeps what it was granted last.
  const auto policy = options_.policy->Current();
  for (const Allocation& seen : policy == nullptr ? options_.book->All() : GrowingLast(*policy)) {
    if (seen.gpu_uuid != gpu_uuid) continue;
    const MutexLock lock(gate->second.mutex);
    const std::optional<Allocation> allocation = options_.book->Find(seen.name);
    if (!allocation.has_value()) continue;
    Allocation renewed = *allocation;
    std::vector<std::string> troubles;
    if (policy != nullptr) RenewRecord(gate->second, *policy, &renewed, &troubles);
    for (const std::string& trouble : troubles) spdlog::error("{}", trouble);
    absl::Status sent = SendRenewed(gate->second, scheduler, renewed, *allocation);
    if (absl::IsUnavailable(sent)) return sent;
    // One that is refused must not keep the others from their GPU.
    if (!sent.ok()) {
      spdlog::error("restore: {}: {}", allocation->name, std::string(sent.message()));
    }
  }
  // What the scheduler has and the book does not was collected, or taken back, while it had no
  // agent.
  const absl::StatusOr<std::vector<std::string>> known = scheduler->ListAllocations();
  if (!known.ok()) return known.status();
  // Asked after the scheduler was: one that another agent adds now is in the book before. One by
  // one, because a listing may leave out a record that another agent replaces meanwhile. One whose
  // record cannot be read now may have a container that runs.
  for (const std::string& name : *known) {
    if (options_.book->MayHave(name)) continue;
    if (absl::Status status = scheduler->RemoveAllocation(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Each GPU beside the others: a scheduler that hangs keeps no other GPU's pods from their grants.
std::vector<std::string> Allocator::Regrant() {
  // A name is of one allocation for ever.
  owed_.ForgetAllBut(
      [&](const std::string& name) { return options_.book->Find(name).has_value(); });
  const auto policy = options_.policy->Current();
  if (policy == nullptr) return {};
  std::map<std::string, std::vector<std::string>> names;  // by GPU
  for (const Allocation& seen : GrowingLast(*policy)) names[seen.gpu_uuid].push_back(seen.name);
  std::vector<std::future<std::vector<std::string>>> answers;
  for (const auto& [gpu_uuid, on_gpu] : names) {
    const auto gate = gates_.find(gpu_uuid);
    if (gate == gates_.end()) continue;
    // Without a thread to be had, one after the other, when they are waited for.
    answers.push_back(
        std::async([this, &policy = *policy, &gate = gate->second, &gpu_names = on_gpu] {
          return RegrantOn(gate, policy, gpu_names);
        }));
  }
  std::vector<std::string> troubles;
  for (auto& answer : answers) {
    std::ranges::move(answer.get(), std::back_inserter(troubles));
  }
  return troubles;
}

std::vector<std::string> Allocator::RegrantOn(const Gate& gate, const Policy& policy,
                                              const std::vector<std::string>& names) const {
  std::vector<std::string> troubles;
  for (const std::string& name : names) {
    const MutexLock lock(gate.mutex);
    // Looked up again: a start that had the lock may have bound it meanwhile, with the policy of
    // before.
    const std::optional<Allocation> allocation = options_.book->Find(name);
    if (!allocation.has_value()) continue;
    Allocation renewed = *allocation;
    // Then the record may say what the scheduler does not know.
    const bool was_refused = owed_.IsOwed(name, OwedGrants::Reason::kIsRefused);
    if (!RenewRecord(gate, policy, &renewed, &troubles) && !was_refused) continue;
    // If its scheduler is away, or goes away now, Restore tells it later.
    const auto scheduler = options_.scheduler(allocation->gpu_uuid);
    if (!scheduler.ok()) continue;
    absl::Status sent = SendRenewed(gate, scheduler->get(), renewed, *allocation);
    if (!sent.ok() && !absl::IsUnavailable(sent)) {
      troubles.push_back(DescribeRefusal(renewed, *allocation, sent));
    }
  }
  return troubles;
}

// By what the book says now: one that starts meanwhile may be in either part.
std::vector<Allocation> Allocator::GrowingLast(const Policy& policy) const {
  std::vector<Allocation> allocations = options_.book->All();
  std::stable_partition(allocations.begin(), allocations.end(), [&](const Allocation& allocation) {
    const auto gate = gates_.find(allocation.gpu_uuid);
    if (gate == gates_.end() || !allocation.binding.has_value()) return true;
    Binding granted = *allocation.binding;
    SetGrant(gate->second.capacity, policy, allocation, &granted);
    return granted.quota_bytes <= allocation.binding->quota_bytes;
  });
  return allocations;
}

// Writes the record first: of two allocations that grow, the second counts the first, and a grant
// that cannot be recorded is not sent to the scheduler.
bool Allocator::RenewRecord(const Gate& gate, const Policy& policy, Allocation* allocation,
                            std::vector<std::string>* troubles) const {
  if (!allocation->binding.has_value()) return false;
  const Allocation before = *allocation;
  Binding& binding = *allocation->binding;
  SetGrant(gate.capacity, policy, before, &binding);
  // All else of the new grant holds; only the memory stays.
  std::string keeps_because = WhyImpossibleFor(policy, gate.capacity, binding.owner.pod_namespace);
  std::string shortage;
  if (keeps_because.empty() && binding.quota_bytes > before.binding->quota_bytes) {
    shortage = Shortage(gate.capacity, policy, before, binding.quota_bytes);
    keeps_because = shortage;
  }
  // An impossible rule is no debt: it needs another policy.
  owed_.Owe(before.name, OwedGrants::Reason::kMemoryIsNotLeft, shortage);
  if (!keeps_because.empty()) {
    binding.quota_bytes = before.binding->quota_bytes;
    troubles->push_back(Cat("policy: ", Describe(binding.owner), " keeps its ",
                            FormatSize(binding.quota_bytes), " of memory: ", keeps_because));
  }
  const bool is_changed = binding != *before.binding;
  const absl::Status recorded =
      is_changed ? options_.book->Bind(before.name, binding) : absl::OkStatus();
  const std::string not_recorded = recorded.ok() ? "" : KeepsOldGrant(before, recorded);
  owed_.Owe(before.name, OwedGrants::Reason::kIsNotRecorded, not_recorded);
  if (recorded.ok()) return is_changed;
  *allocation = before;
  troubles->push_back(not_recorded);
  return false;
}

absl::Status Allocator::SendRenewed(const Gate&, SchedulerClient* scheduler,
                                    const Allocation& renewed, const Allocation& before) const {
  absl::Status sent = SendGrant(scheduler, renewed);
  // A scheduler that is gone gets the grant from Restore when it is back; an allocation that is not
  // bound gets it in PreStart.
  if (absl::IsUnavailable(sent) || !renewed.binding.has_value()) return sent;
  owed_.Owe(renewed.name, OwedGrants::Reason::kIsRefused,
            sent.ok() ? "" : DescribeRefusal(renewed, before, sent));
  if (sent.ok() || renewed.binding == before.binding) return sent;
  if (absl::Status status = options_.book->Bind(before.name, *before.binding); !status.ok()) {
    spdlog::error("policy: the record of {} says what its scheduler has refused: {}",
                  Describe(before.binding->owner), std::string(status.message()));
  }
  // One that has just come up has no grant of it yet, and without any the tenant is not served.
  const absl::Status former = SendGrant(scheduler, before);
  return absl::IsUnavailable(former) ? former : sent;
}

}  // namespace gpuloom
