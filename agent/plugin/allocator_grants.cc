// SPDX-License-Identifier: Apache-2.0
// What an allocation's pod is granted at a container's start. Later: allocator_renewals.cc. What is
// given to which container, and taken back: allocator.cc.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "agent/cat.h"
#include "agent/inventory/slots.h"
#include "agent/node/size.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/grant.h"
#include "agent/policy/capacity.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kSchedulerPause = std::chrono::milliseconds(200);

// By name, because the kubelet's list has no uid. A later pod of the same name is told apart by the
// times of its allocations (agent/identity/collector.cc).
bool IsSamePod(const PodContainer& a, const PodContainer& b) {
  return a.pod_namespace == b.pod_namespace && a.pod == b.pod;
}

absl::Status NoAllocation(const std::vector<std::string>& device_ids) {
  return absl::NotFoundError(Cat("state: no allocation is known for ",
                                 absl::StrJoin(device_ids, ", "),
                                 "; delete the pod, so that the kubelet allocates anew"));
}

void SayStarted(const Allocation& allocation) {
  const Binding& binding = *allocation.binding;
  spdlog::info("start: {}: {}, {} slots, {}, trust domain {}", allocation.name,
               Describe(binding.owner), SlotsOf(allocation).size(), FormatSize(binding.quota_bytes),
               binding.trust_domain);
}

}  // namespace

// First what takes time and changes nothing: who the pod is, and a scheduler to tell. Then, under
// the GPU's lock, everything else. The kubelet repeats a start that is refused, so each step must
// bear being done twice.
absl::Status Allocator::PreStart(const std::vector<std::string>& device_ids,
                                 std::string* pod_namespace) {
  const absl::StatusOr<std::string> gpu_uuid = RequireOneGpu(device_ids);
  if (!gpu_uuid.ok()) return gpu_uuid.status();
  const auto gate = gates_.find(*gpu_uuid);
  if (gate == gates_.end()) {
    return absl::NotFoundError(
        Cat("inventory: GPU ", *gpu_uuid, " is no longer on this node; delete the pod"));
  }
  // Without an allocation there is nothing to wait for. It is looked up again after the waits, and
  // that result counts.
  if (options_.book->FindByDevices(device_ids).empty()) {
    const absl::Status status = KnowsWhatIsHeld();
    return status.ok() ? NoAllocation(device_ids) : status;
  }
  const absl::StatusOr<PodContainer> owner = resolver_.Resolve(device_ids);
  if (!owner.ok()) return owner.status();
  if (pod_namespace != nullptr) *pod_namespace = owner->pod_namespace;
  const absl::StatusOr<std::shared_ptr<SchedulerClient>> scheduler = WaitForScheduler(*gpu_uuid);
  if (!scheduler.ok()) return scheduler.status();
  const absl::StatusOr<std::string> started =
      Start(gate->second, device_ids, *owner, scheduler->get());
  if (!started.ok()) return started.status();
  // Creates the executor's context while the container starts. Not repeated for a scheduler that is
  // restarted, because most allocations may never be used again.
  if (absl::Status status = (*scheduler)->PrepareExecutor(*started); !status.ok()) {
    spdlog::debug("start: {}: {}", *started, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Allocator::Start(const Gate& gate,
                                             const std::vector<std::string>& device_ids,
                                             const PodContainer& owner,
                                             SchedulerClient* scheduler) {
  const MutexLock lock(gate.mutex);
  // One policy for all that follows. A change of it that comes now is followed by Regrant, which
  // waits for the lock.
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  if (policy == nullptr) {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(owner), ": ", options_.policy->Trouble()));
  }
  if (absl::Status status = Admit(gate, *policy, device_ids, owner); !status.ok()) {
    return status;
  }
  std::vector<Allocation> allocations = options_.book->FindByDevices(device_ids);
  if (allocations.empty()) return NoAllocation(device_ids);
  // The kubelet does not say which of a pod's containers starts. Those with the same IDs are an
  // init container and the app container that takes them over: both are bound, as of one pod they
  // are. An unbound one of an earlier pod may be among them; no container was ever started with it,
  // so binding it gives no pod anything.
  const Allocation latest = allocations.back();
  std::erase_if(allocations, [&](const Allocation& allocation) {
    return allocation.binding.has_value() && !IsSamePod(allocation.binding->owner, owner);
  });
  // The kubelet has passed the IDs on without Allocate, which makes a new one each time.
  if (allocations.empty()) {
    return absl::FailedPreconditionError(
        Cat("identity: ", absl::StrJoin(device_ids, ", "), " was allocated for ",
            Describe(latest.binding->owner), ", but the kubelet says ", Describe(owner),
            " holds it now; delete the pod, so that the kubelet ", "allocates anew"));
  }
  // A container that starts again was admitted before: a GPU that has been drained since keeps what
  // runs there. Only the latest is judged: of those with the same slots only that counts
  // (slot_use.h).
  if (!allocations.back().binding.has_value()) {
    const absl::Status room = CheckRoom(gate, *policy, allocations.back(), owner);
    if (!room.ok()) return room;
  }
  for (const Allocation& allocation : allocations) {
    const absl::Status status = allocation.binding.has_value()
                                    ? StartAgain(gate, *policy, allocation, scheduler)
                                    : BindFirst(gate, *policy, allocation, owner, scheduler);
    if (!status.ok()) return status;
  }
  return allocations.back().name;
}

absl::Status Allocator::CheckRoom(const Gate& gate, const Policy& policy,
                                  const Allocation& allocation, const PodContainer& owner) const {
  if (const std::string closed = Closed(allocation.gpu_uuid); !closed.empty()) {
    return absl::FailedPreconditionError(
        Cat(Describe(owner), ": ", closed, "; delete the pod, so that it is placed elsewhere"));
  }
  // The kubelet repeats the start.
  if (absl::Status status = KnowsWhatIsHeld(); !status.ok()) return status;
  Binding granted;
  granted.owner = owner;
  SetGrant(gate.capacity, policy, allocation, &granted);
  if (granted.quota_bytes == 0) {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(owner),
            " would get no GPU memory: the reserve leaves nothing for the slots"));
  }
  const std::string shortage = Shortage(gate.capacity, policy, allocation, granted.quota_bytes);
  if (shortage.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(Cat("memory: ", Describe(owner), ": ", shortage));
}

absl::Status Allocator::BindFirst(const Gate& gate, const Policy& policy, Allocation allocation,
                                  const PodContainer& owner, SchedulerClient* scheduler) const {
  Binding& binding = allocation.binding.emplace();
  binding.owner = owner;
  binding.bound_at = options_.clock->Now();
  SetGrant(gate.capacity, policy, allocation, &binding);
  if (absl::Status status = SendGrant(scheduler, allocation); !status.ok()) {
    return absl::Status(status.code(), Cat(Describe(owner), ": ", std::string(status.message())));
  }
  // Behind the scheduler's consent: a record must not claim a binding that was refused. If this
  // fails, the start is repeated, and the scheduler takes the same identity again.
  if (absl::Status status = options_.book->Bind(allocation.name, binding); !status.ok()) {
    return status;
  }
  SayStarted(allocation);
  return absl::OkStatus();
}

absl::Status Allocator::StartAgain(const Gate& gate, const Policy& policy,
                                   const Allocation& allocation, SchedulerClient* scheduler) const {
  // The owner and the time of the first start stay: by that time the collector tells this pod from
  // a later one. The grant is the policy's of today.
  Allocation renewed = allocation;
  std::vector<std::string> troubles;
  RenewRecord(gate, policy, &renewed, &troubles);
  for (const std::string& trouble : troubles) spdlog::warn("{}", trouble);
  absl::Status sent = SendRenewed(gate, scheduler, renewed, allocation);
  if (!sent.ok()) {
    return absl::Status(
        sent.code(), Cat(Describe(allocation.binding->owner), ": ", std::string(sent.message())));
  }
  SayStarted(renewed);
  return absl::OkStatus();
}

absl::Status Allocator::Admit(const Gate& gate, const Policy& policy,
                              const std::vector<std::string>& device_ids,
                              const PodContainer& owner) const {
  // The kubelet is asked only where a rule limits the number of tenants: its answer may take
  // seconds, and the GPU's lock is held.
  absl::StatusOr<uint32_t> others = 0;
  if (SettingsOfNamespace(policy, owner.pod_namespace).max_tenants.value != 0) {
    others = OtherTenants(gate.capacity.gpu, device_ids, owner.pod_namespace);
    if (!others.ok()) return others.status();
  }
  const std::string refusal =
      Refusal(policy, gate.capacity, {owner.pod_namespace, owner.pod, owner.container, *others});
  if (refusal.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("policy: ", Describe(owner), ": ", refusal));
}

absl::StatusOr<uint32_t> Allocator::OtherTenants(const std::string& gpu_uuid,
                                                 const std::vector<std::string>& device_ids,
                                                 const std::string& pod_namespace) const {
  // Containers are told apart by device IDs. Those that have one in common with this container are
  // it, or an init container whose IDs it takes over.
  const auto share_an_id = [](const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
    return std::any_of(a.begin(), a.end(), [&](const std::string& id) {
      return std::find(b.begin(), b.end(), id) != b.end();
    });
  };
  const absl::StatusOr<std::vector<ContainerDevices>> held = options_.pod_resources->List();
  if (!held.ok()) return held.status();
  // The list alone would count pods that are refused, and the book alone those that have ended and
  // are not collected yet.
  const std::vector<Allocation> allocations = options_.book->All();
  return static_cast<uint32_t>(
      std::count_if(held->begin(), held->end(), [&](const ContainerDevices& container) {
        if (container.owner.pod_namespace != pod_namespace ||
            share_an_id(container.device_ids, device_ids)) {
          return false;
        }
        return std::any_of(
            allocations.begin(), allocations.end(), [&](const Allocation& allocation) {
              return allocation.gpu_uuid == gpu_uuid && allocation.binding.has_value() &&
                     IsSamePod(allocation.binding->owner, container.owner) &&
                     share_an_id(allocation.device_ids, container.device_ids);
            });
      }));
}

std::string Allocator::Shortage(const Capacity& capacity, const Policy& policy,
                                const Allocation& allocation, uint64_t wanted_bytes) const {
  if (policy.overcommit) return "";
  // Asked anew each time: of two allocations that grow, the second must count the first.
  const SlotUse use = UseOf(capacity, options_.book->All());
  const std::vector<int> slots = SlotsOf(allocation);
  const uint64_t left_bytes = use.LeftBeside(slots);
  if (wanted_bytes <= left_bytes) return "";
  return Cat("GPU ", capacity.gpu, " has ", FormatSize(left_bytes),
             " that are promised to nobody, and ", FormatSize(wanted_bytes), " are needed for ",
             slots.size(),
             " slots: pods that run keep what they were given before the number of slots, the "
             "reserve or the policy was changed; more is free when they end");
}

absl::Status Allocator::SendGrant(SchedulerClient* scheduler, const Allocation& allocation) const {
  if (absl::Status status =
          scheduler->AddAllocation(allocation.name, options_.book->DirectoryOf(allocation.name),
                                   static_cast<int>(SlotsOf(allocation).size()));
      !status.ok()) {
    return status;
  }
  if (!allocation.binding.has_value()) return absl::OkStatus();
  const Binding& binding = *allocation.binding;
  BindOrder order;
  order.name = allocation.name;
  order.pod_namespace = binding.owner.pod_namespace;
  order.pod = binding.owner.pod;
  order.container = binding.owner.container;
  order.trust_domain = binding.trust_domain;
  order.memory_quota_bytes = binding.quota_bytes;
  order.pinned_limit_bytes = options_.pinned_limit_bytes;
  order.shares = binding.shares;
  order.memory_wait_ms = binding.memory_wait_ms;
  order.kernels = binding.kernels;
  order.partition = binding.partition;
  order.trace = binding.trace;
  order.rescue_after_ms = binding.rescue_after_ms;
  return scheduler->BindAllocation(order);
}

absl::StatusOr<std::shared_ptr<SchedulerClient>> Allocator::WaitForScheduler(
    const std::string& gpu_uuid) const {
  const Clock::Time start = options_.clock->Now();
  for (;;) {
    absl::StatusOr<std::shared_ptr<SchedulerClient>> scheduler = options_.scheduler(gpu_uuid);
    if (scheduler.ok() || options_.clock->Now() + kSchedulerPause >= start + options_.patience)
      return scheduler;
    options_.clock->SleepFor(kSchedulerPause);
  }
}

}  // namespace gpuloom
