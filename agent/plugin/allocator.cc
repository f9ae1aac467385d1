// SPDX-License-Identifier: Apache-2.0
// The locks: allocation_mutex_ and admission_mutex_ each span a look at the book and the write that
// rests on it; they are never held together. Neither keeps out another agent, which shares the book
// while one replaces the other, nor Regrant and Sweep, which only the agent's main thread calls.
#include "agent/plugin/allocator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "agent/cat.h"
#include "agent/identity/resource_name.h"
#include "agent/inventory/slots.h"
#include "agent/node/size.h"
#include "agent/plugin/share_terms.h"
#include "agent/policy/capacity.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kSchedulerPause = std::chrono::milliseconds(200);

std::string Describe(const PodContainer& owner) {
  return Cat("pod ", owner.pod_namespace, "/", owner.pod,
             owner.container.empty() ? " (init container)" : ", container ", owner.container);
}

// A container has one CUDA device, so it cannot have two places for a shape.
absl::Status TwoDevices(const std::string& resource, size_t count) {
  return absl::FailedPreconditionError(Cat(
      "slots: a container asks for ", resource, ": ", count,
      ", and can have one only: its slots are one CUDA device; ask for 1, or for a larger shape"));
}

// By name, because the kubelet's list has no uid. A later pod of the same name is told apart by the
// times of its allocations (agent/identity/collector.cc).
bool IsSamePod(const PodContainer& a, const PodContainer& b) {
  return a.pod_namespace == b.pod_namespace && a.pod == b.pod;
}

}  // namespace

Allocator::Allocator(Options options)
    : options_(std::move(options)),
      resolver_(options_.pod_resources, options_.clock, options_.patience),
      collector_(options_.collector_times) {}

// A refusal here fails the pod for good, so only what no retry can mend is refused: a GPU that this
// agent does not have or does not give out, and slots that another container holds. What the policy
// has against the pod is not asked: the kubelet does not name it yet.
absl::StatusOr<ContainerSetup> Allocator::Allocate(const std::vector<std::string>& device_ids) {
  const absl::StatusOr<std::string> gpu_uuid = GpuOf(device_ids);
  if (!gpu_uuid.ok()) return gpu_uuid.status();
  if (!options_.capacities.contains(*gpu_uuid)) {
    return absl::NotFoundError(Cat("inventory: GPU ", *gpu_uuid, " is no longer on this node"));
  }
  if (const std::string closed = Closed(*gpu_uuid); !closed.empty()) {
    return absl::FailedPreconditionError(closed);
  }
  const absl::StatusOr<Allocation> allocation = TakeSlots(*gpu_uuid, device_ids);
  if (!allocation.ok()) return allocation.status();
  const std::string directory = options_.book->DirectoryOf(allocation->name);

  // A failure is no refusal: PreStart adds the allocation again before it binds it.
  if (const auto scheduler = options_.scheduler(*gpu_uuid); scheduler.ok()) {
    const absl::Status added = (*scheduler)
                                   ->AddAllocation(allocation->name, directory,
                                                   static_cast<int>(SlotsOf(*allocation).size()));
    if (!added.ok()) spdlog::warn("allocate: {}", std::string(added.message()));
  }
  spdlog::info("allocate: {}: {}{}", allocation->name, absl::StrJoin(device_ids, ", "),
               allocation->slots.empty()
                   ? ""
                   : Cat(", which is slots ", absl::StrJoin(allocation->slots, ", ")));
  return MakeContainerSetup(directory, options_.library_files, *options_.shims,
                            options_.tells_page_faults);
}

absl::StatusOr<std::string> Allocator::GpuOf(const std::vector<std::string>& device_ids) const {
  // FailedPrecondition means devices of several GPUs: a preference is only advice, so a kubelet may
  // spread slots. Two devices of a shape are refused on one GPU, too (ShapesSlots).
  absl::StatusOr<std::string> gpu_uuid = RequireOneGpu(device_ids);
  if (!absl::IsFailedPrecondition(gpu_uuid.status())) return gpu_uuid;
  const int shape = ParseDeviceId(device_ids.front())->shape;
  if (shape == 1) return WithRemedy(gpu_uuid.status(), device_ids.size());
  return TwoDevices(ResourceNameOf(options_.resource_name, shape), device_ids.size());
}

absl::Status Allocator::WithRemedy(const absl::Status& refusal, size_t slots) const {
  // The cluster's scheduler counts the slots of a node, not of a GPU: only a shape makes a pod wait
  // for room on one. There is none of a single slot, nor of more slots than any GPU has.
  const bool can_fit = std::any_of(
      options_.capacities.begin(), options_.capacities.end(),
      [&](const auto& entry) { return slots <= static_cast<size_t>(entry.second.slots); });
  if (!absl::IsFailedPrecondition(refusal) || !can_fit || slots < 2) return refusal;
  const bool has_shape =
      std::any_of(options_.shapes.begin(), options_.shapes.end(),
                  [&](int shape) { return slots == static_cast<size_t>(shape); });
  return absl::FailedPreconditionError(
      Cat(std::string(refusal.message()), " (",
          has_shape ? Cat(ResourceNameOf(options_.resource_name, static_cast<int>(slots)), ": 1")
                    : Cat("a shape of ", slots),
          " would wait for them", has_shape ? "" : ": see slotShapes", ")"));
}

absl::StatusOr<Allocation> Allocator::TakeSlots(const std::string& gpu_uuid,
                                                const std::vector<std::string>& device_ids) {
  const DeviceId first = *ParseDeviceId(device_ids.front());
  const Capacity& capacity = options_.capacities.at(gpu_uuid);
  // Held over the write of the record, which is an fsync: a second call must count these slots. No
  // scheduler is asked meanwhile, so a scheduler that hangs does not hold up the allocations of
  // others.
  const MutexLock lock(allocation_mutex_);
  const SlotUse use = UseOf(capacity, options_.book->All());
  std::vector<int> shapes_slots;
  if (first.shape == 1) {
    if (absl::Status status = CheckSingleSlots(use, device_ids); !status.ok()) return status;
  } else {
    absl::StatusOr<std::vector<int>> slots = ShapesSlots(use, first, device_ids.size());
    if (!slots.ok()) return slots.status();
    shapes_slots = *std::move(slots);
  }
  absl::StatusOr<Allocation> allocation =
      options_.book->Add(gpu_uuid, device_ids, options_.library_files, options_.clock->Now(),
                         AutoSlotBytes(capacity), std::move(shapes_slots));
  if (allocation.ok() && options_.on_use) {
    options_.on_use(gpu_uuid, UseOf(capacity, options_.book->All()));
  }
  return allocation;
}

absl::Status Allocator::CheckSingleSlots(const SlotUse& use,
                                         const std::vector<std::string>& device_ids) {
  for (const std::string& id : device_ids) {
    const DeviceId slot = *ParseDeviceId(id);
    if (slot.number >= use.slots()) {
      return absl::InvalidArgumentError(
          Cat("kubelet: device ID ", id, ": GPU ", slot.gpu_uuid, " has ", use.slots(), " slots"));
    }
    if (const std::string shape = use.ShapeWith(slot.number); !shape.empty()) {
      return absl::FailedPreconditionError(
          Cat("slots: ", id, " is a part of ", shape,
              ", which another pod was given at the same moment; a new pod gets another slot, or "
              "waits for one"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> Allocator::ShapesSlots(const SlotUse& use, const DeviceId& device,
                                                        size_t count) const {
  const std::string resource = ResourceNameOf(options_.resource_name, device.shape);
  if (count != 1) return TwoDevices(resource, count);
  std::vector<int> slots = use.SlotsFor(device);
  if (!slots.empty()) return slots;
  return absl::FailedPreconditionError(
      Cat("slots: GPU ", device.gpu_uuid, " has ", use.Free().size(), " free slots, fewer than ",
          resource,
          " is: another pod was given some at the same moment; a new pod waits until "
          "there is room"));
}

absl::StatusOr<std::vector<std::string>> Allocator::Prefer(
    std::vector<std::string> available, const std::vector<std::string>& must_include, int size) {
  const std::optional<DeviceId> first =
      available.empty() ? std::nullopt : ParseDeviceId(available.front());
  if (first.has_value() && first->shape != 1) {
    if (size != 1) {
      return TwoDevices(ResourceNameOf(options_.resource_name, first->shape),
                        static_cast<size_t>(size));
    }
  } else {
    // Those that became a shape's at this moment, which the kubelet has not heard of.
    const std::map<std::string, SlotUse> uses = SlotUses();
    std::erase_if(available, [&](const std::string& id) {
      const std::optional<DeviceId> slot = ParseDeviceId(id);
      const auto use = slot.has_value() ? uses.find(slot->gpu_uuid) : uses.end();
      return use != uses.end() && !use->second.ShapeWith(slot->number).empty();
    });
  }
  absl::StatusOr<std::vector<std::string>> preferred = PreferOneGpu(available, must_include, size);
  if (preferred.ok()) return preferred;
  return WithRemedy(preferred.status(), static_cast<size_t>(size));
}

std::string Allocator::Closed(const std::string& gpu_uuid) const {
  // Does not consider whether the GPU is sick or unserved: that may pass before the container starts, and the kubelet
  // sees it by unhealthy devices. A drained GPU must not be given again at all, and at once.
  const std::string nothing = NothingLeft(options_.capacities.at(gpu_uuid));
  if (!nothing.empty()) return Cat("gpu: ", nothing);
  const std::string why = options_.closed ? options_.closed(gpu_uuid) : "";
  return why.empty() ? "" : Cat("gpu: ", gpu_uuid, " is ", why);
}

void Allocator::TakeBack(const ContainerSetup& setup) {
  // The allocation's directory is the first mount (container_setup.h), and its last part the name.
  const std::string& directory = setup.mounts.front().host_path;
  const std::string name = directory.substr(directory.rfind('/') + 1);
  const std::optional<Allocation> allocation = options_.book->Find(name);
  if (!allocation.has_value()) return;
  if (const auto scheduler = options_.scheduler(allocation->gpu_uuid); scheduler.ok()) {
    // Nobody has the directory mounted. What a scheduler keeps of it all the same goes with the
    // next Restore, because the book does not have it any more.
    (void)(*scheduler)->RemoveAllocation(name);
  }
  // Sweep retries what cannot be removed now.
  (void)options_.book->Remove(name);
}

// First what takes time and changes nothing: who the pod is, and a scheduler to tell. Then, under
// one lock, whether it may start, and the binding. The kubelet repeats a start that is refused, so
// each step must bear being done twice.
absl::Status Allocator::PreStart(const std::vector<std::string>& device_ids) {
  const absl::StatusOr<std::string> gpu_uuid = RequireOneGpu(device_ids);
  if (!gpu_uuid.ok()) return gpu_uuid.status();
  if (!options_.capacities.contains(*gpu_uuid)) {
    return absl::NotFoundError(
        Cat("inventory: GPU ", *gpu_uuid, " is no longer on this node; delete the pod"));
  }
  // Every Allocate makes a new one, so the latest of them is this pod's, unless the kubelet has
  // passed the IDs on without Allocate, which is found out below.
  const std::vector<Allocation> allocations = options_.book->FindByDevices(device_ids);
  if (allocations.empty()) {
    return absl::NotFoundError(Cat("state: no allocation is known for ",
                                   absl::StrJoin(device_ids, ", "),
                                   "; delete the pod, so that the kubelet allocates anew"));
  }
  const absl::StatusOr<PodContainer> owner = resolver_.Resolve(device_ids);
  if (!owner.ok()) return owner.status();
  const auto no_policy = [&] {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(*owner), ": ", options_.policy->Trouble()));
  };
  Binding granted;
  granted.owner = *owner;
  if (!SetGrant(allocations.back(), &granted)) return no_policy();
  if (granted.quota_bytes == 0) {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(*owner),
            " would get no GPU memory: the reserve leaves nothing for the slots"));
  }
  const absl::StatusOr<std::shared_ptr<SchedulerClient>> scheduler = WaitForScheduler(*gpu_uuid);
  if (!scheduler.ok()) return scheduler.status();

  const MutexLock lock(admission_mutex_);
  if (absl::Status status = Admit(*gpu_uuid, device_ids, *owner); !status.ok()) return status;
  // A container that starts again was admitted before: a GPU that has been drained since keeps what
  // runs there.
  if (!allocations.back().binding.has_value()) {
    if (const std::string closed = Closed(*gpu_uuid); !closed.empty()) {
      return absl::FailedPreconditionError(
          Cat(Describe(*owner), ": ", closed, "; delete the pod, so that it is placed elsewhere"));
    }
    const std::string shortage =
        Shortage(*gpu_uuid, SlotsOf(allocations.back()), granted.quota_bytes);
    if (!shortage.empty()) {
      return absl::ResourceExhaustedError(Cat("memory: ", Describe(*owner), ": ", shortage));
    }
  }
  // The kubelet does not say which of a pod's containers starts. Those with the same IDs are an
  // init container and the app container that takes them over: both are bound, as of one pod they
  // are. An unbound one of an earlier pod may be among them; no container was ever started with it,
  // so binding it gives no pod anything.
  std::string bound_name;
  // Looked up again: while this call waited, another may have bound one of them.
  const PodContainer* other = nullptr;
  const std::vector<Allocation> now = options_.book->FindByDevices(device_ids);
  for (const Allocation& allocation : now) {
    if (allocation.binding.has_value() && !IsSamePod(allocation.binding->owner, *owner)) {
      other = &allocation.binding->owner;
      continue;
    }
    // The owner and the time of the first start stay: by that time the collector tells this pod
    // from a later one. The grant is the policy's of today.
    Allocation bound = allocation;
    if (!bound.binding.has_value()) {
      bound.binding.emplace();
      bound.binding->owner = *owner;
      bound.binding->bound_at = options_.clock->Now();
    }
    if (!SetGrant(bound, &*bound.binding)) return no_policy();
    if (absl::Status status = Tell(scheduler->get(), bound); !status.ok()) {
      return absl::Status(status.code(),
                          Cat(Describe(*owner), ": ", std::string(status.message())));
    }
    // Only after the scheduler has agreed: a record must not claim a binding that was refused. If this fails, the
    // start is repeated, and the scheduler accepts the same identity again.
    if (absl::Status status = options_.book->Bind(bound.name, *bound.binding); !status.ok())
      return status;
    bound_name = bound.name;
    spdlog::info("start: {}: {}, {} slots, {}, trust domain {}", bound.name, Describe(*owner),
                 SlotsOf(bound).size(), FormatSize(bound.binding->quota_bytes),
                 bound.binding->trust_domain);
  }
  if (bound_name.empty()) {
    return absl::FailedPreconditionError(
        Cat("identity: ", absl::StrJoin(device_ids, ", "), " was allocated for ", Describe(*other),
            ", but the kubelet says ", Describe(*owner),
            " holds it now; delete the pod, so that the kubelet ", "allocates anew"));
  }
  // Creates the executor's context while the container starts. Not repeated for a scheduler that is
  // restarted, because most allocations may never be used again.
  if (absl::Status status = (*scheduler)->PrepareExecutor(bound_name); !status.ok()) {
    spdlog::debug("start: {}: {}", bound_name, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status Allocator::Admit(const std::string& gpu_uuid,
                              const std::vector<std::string>& device_ids,
                              const PodContainer& owner) const {
  // PreStart has found one in force. It stays so: a policy is only ever replaced by another one.
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  if (policy == nullptr) return absl::OkStatus();
  // The kubelet is asked only where a rule limits the number of tenants: its answer may take
  // seconds, and admission_mutex_ is held.
  absl::StatusOr<uint32_t> others = 0;
  if (SettingsOfNamespace(*policy, owner.pod_namespace).max_tenants.value != 0) {
    others = OtherTenants(gpu_uuid, device_ids, owner.pod_namespace);
    if (!others.ok()) return others.status();
  }
  const std::string refusal = Refusal(*policy, options_.capacities.at(gpu_uuid),
                                      {owner.pod_namespace, owner.pod, owner.container, *others});
  if (refusal.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("policy: ", Describe(owner), ": ", refusal));
}

absl::StatusOr<uint32_t> Allocator::OtherTenants(const std::string& gpu_uuid,
                                                 const std::vector<std::string>& device_ids,
                                                 const std::string& pod_namespace) const {
  // Containers are distinguished by device IDs. One that has an ID in common with this container is this container,
  // or an init container whose IDs it takes over.
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

// Called by the supervisor before the client is given out, so no other thread uses this connection
// yet. Another agent may speak to the same scheduler over its own.
absl::Status Allocator::Restore(const std::string& gpu_uuid, SchedulerClient* scheduler) {
  for (Allocation& allocation : options_.book->All()) {
    if (allocation.gpu_uuid != gpu_uuid) continue;
    if (allocation.binding.has_value()) {
      // Without a policy in force what runs keeps what it was granted last.
      Binding granted = *allocation.binding;
      if (SetGrant(allocation, &granted)) {
        if (granted.quota_bytes > allocation.binding->quota_bytes &&
            !Shortage(gpu_uuid, SlotsOf(allocation), granted.quota_bytes).empty()) {
          granted.quota_bytes = allocation.binding->quota_bytes;
        }
        allocation.binding = granted;
      }
    }
    absl::Status told = Tell(scheduler, allocation);
    if (absl::IsUnavailable(told)) return told;
    // One that is refused must not keep the others from their GPU.
    if (!told.ok()) spdlog::error("restore: {}: {}", allocation.name, std::string(told.message()));
  }
  // What the scheduler has and the book does not was collected, or taken back, while it had no
  // agent.
  const absl::StatusOr<std::vector<std::string>> known = scheduler->ListAllocations();
  if (!known.ok()) return known.status();
  // Asked after the scheduler was: one that another agent adds now is in the book before.
  std::set<std::string> in_book;
  for (const Allocation& allocation : options_.book->All()) in_book.insert(allocation.name);
  for (const std::string& name : *known) {
    if (in_book.contains(name)) continue;
    if (absl::Status status = scheduler->RemoveAllocation(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<std::string> Allocator::Regrant() {
  std::vector<std::string> troubles;
  for (Allocation& allocation : options_.book->All()) {
    if (!allocation.binding.has_value() || !options_.capacities.contains(allocation.gpu_uuid))
      continue;
    const Binding before = *allocation.binding;
    if (const std::string broken = BrokenPromiseTo(allocation); !broken.empty()) {
      troubles.push_back(Cat("policy: ", Describe(before.owner), " keeps its ",
                             FormatSize(before.quota_bytes), " of memory: ", broken));
    }
    if (!SetGrant(allocation, &*allocation.binding) || *allocation.binding == before) continue;
    if (allocation.binding->quota_bytes > before.quota_bytes) {
      const std::string shortage =
          Shortage(allocation.gpu_uuid, SlotsOf(allocation), allocation.binding->quota_bytes);
      if (!shortage.empty()) {
        // The rest of the new grant holds; only the memory stays.
        allocation.binding->quota_bytes = before.quota_bytes;
        troubles.push_back(Cat("policy: ", Describe(before.owner), " keeps its ",
                               FormatSize(before.quota_bytes), " of memory: ", shortage));
      }
    }
    absl::Status status;
    // If its scheduler is away, Restore tells it later.
    if (const auto scheduler = options_.scheduler(allocation.gpu_uuid); scheduler.ok()) {
      status = Tell(scheduler->get(), allocation);
    }
    if (status.ok()) status = options_.book->Bind(allocation.name, *allocation.binding);
    if (!status.ok()) {
      troubles.push_back(Cat("policy: ", Describe(allocation.binding->owner),
                             " keeps its old grant: ", std::string(status.message())));
    }
  }
  return troubles;
}

std::vector<std::string> Allocator::Sweep(bool has_predecessor) {
  const std::vector<Allocation> allocations = options_.book->All();
  std::vector<std::string> troubles;
  if (!allocations.empty()) {
    const absl::StatusOr<std::vector<ContainerDevices>> held = options_.pod_resources->List();
    if (!held.ok()) return {std::string(held.status().message())};
    std::vector<std::string> over;
    {
      const MutexLock lock(collector_mutex_);
      over = collector_.Judge(allocations, *held, options_.clock->Now());
    }
    for (const std::string& name : over) {
      const std::optional<Allocation> allocation = options_.book->Find(name);
      if (!allocation.has_value()) continue;
      absl::Status status;
      // If the GPU is no longer in the inventory, no scheduler has the allocation.
      if (options_.capacities.contains(allocation->gpu_uuid)) {
        const auto scheduler = options_.scheduler(allocation->gpu_uuid);
        status = scheduler.ok() ? (*scheduler)->RemoveAllocation(name) : scheduler.status();
      }
      // Last: with the record the next sweep would lose the name to try again with, and the slots
      // would be free while the scheduler still serves their holder.
      if (status.ok()) status = options_.book->Remove(name);
      if (status.ok()) {
        spdlog::info("collect: {}: its pod is gone", name);
      } else {
        troubles.push_back(Cat("collect: ", name, ": ", std::string(status.message())));
      }
    }
  }
  // The agent that is leaving still gives its own libraries to containers that are in no record
  // yet.
  if (has_predecessor) return troubles;
  std::set<std::string> used;
  const auto use = [&used](const LibraryFiles& files) {
    used.insert({files.cuda, files.nvml, files.trace});
  };
  use(options_.library_files);
  for (const Allocation& allocation : options_.book->All()) use(allocation.library_files);
  if (const absl::Status status = options_.shims->Prune(used); !status.ok()) {
    troubles.push_back(std::string(status.message()));
  }
  return troubles;
}

void Allocator::KubeletSeen(const std::string& kubelet_id) {
  // When this cannot be written down, the next agent waits out a kubelet's first minutes once more:
  // late to collect is safe, early is not.
  const Clock::Time now = options_.clock->Now();
  const absl::StatusOr<Clock::Time> since = options_.kubelet_record->FirstSeen(kubelet_id, now);
  if (!since.ok()) spdlog::warn("{}", std::string(since.status().message()));
  const MutexLock lock(collector_mutex_);
  collector_.KubeletSeen(since.value_or(now));
}

bool Allocator::SetGrant(const Allocation& allocation, Binding* binding) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  const auto capacity = options_.capacities.find(allocation.gpu_uuid);
  if (policy == nullptr || capacity == options_.capacities.end()) return false;
  const PodContainer& owner = binding->owner;
  // "auto" is what a slot was when the allocation was made, not what it would be of today's --slots
  // and --reserve: the rest of the GPU's memory was promised on those terms.
  const Grant grant = Decide(*policy, capacity->second, owner.pod_namespace, owner.pod);
  const bool is_auto = SettingsOfNamespace(*policy, owner.pod_namespace).memory.value.is_auto;
  binding->trust_domain = grant.trust_domain;
  // A running container keeps its memory when its rule becomes impossible here. 0 is a binding that is being made:
  // PreStart refuses it if the rule is impossible (Admit).
  if (binding->quota_bytes == 0 ||
      gpuloom::BrokenPromiseTo(*policy, capacity->second, owner.pod_namespace).empty()) {
    binding->quota_bytes =
        (is_auto ? AutoSlotBytesOf(allocation, capacity->second) : grant.slot_bytes) *
        SlotsOf(allocation).size();
  }
  binding->shares = ShareTermsOf(*policy, owner);
  binding->kernels = KernelTermsOf(*policy, owner);
  binding->partition = PartitionTermsOf(*policy, owner);
  binding->memory_wait_ms =
      1000 *
      SettingsOfPod(*policy, owner.pod_namespace, owner.pod, owner.container).memory_wait_s.value;
  binding->trace = TraceTermsOf(*policy, owner);
  binding->rescue_after_ms = RescueAfterMsOf(*policy, owner);
  return true;
}

std::string Allocator::BrokenPromiseTo(const Allocation& allocation) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  const auto capacity = options_.capacities.find(allocation.gpu_uuid);
  if (policy == nullptr || capacity == options_.capacities.end()) return "";
  return gpuloom::BrokenPromiseTo(*policy, capacity->second,
                                  allocation.binding->owner.pod_namespace);
}

SlotUse Allocator::UseOf(const Capacity& capacity,
                         const std::vector<Allocation>& allocations) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  // It is unknown to which namespace a free slot will go: the defaults are assumed.
  const auto* rule = policy == nullptr || !policy->defaults.memory.has_value()
                         ? nullptr
                         : &policy->defaults.memory->value;
  // If the defaults are impossible on this GPU, only other namespaces get slots; they count as no larger than an even
  // share of the GPU's memory.
  uint64_t slot_bytes = AutoSlotBytes(capacity);
  if (rule != nullptr && !rule->is_auto) slot_bytes = std::min(slot_bytes, rule->slot_bytes);
  return SlotUse(capacity, allocations, slot_bytes, policy != nullptr && policy->overcommit);
}

std::map<std::string, SlotUse> Allocator::SlotUses() const {
  const std::vector<Allocation> allocations = options_.book->All();
  std::map<std::string, SlotUse> uses;
  for (const auto& [uuid, capacity] : options_.capacities) {
    uses.emplace(uuid, UseOf(capacity, allocations));
  }
  return uses;
}

std::string Allocator::Shortage(const std::string& gpu_uuid, const std::vector<int>& slots,
                                uint64_t wanted_bytes) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  if (policy == nullptr || policy->overcommit) return "";
  // Asked anew each time: of two allocations that grow, the second must count the first.
  const SlotUse use = UseOf(options_.capacities.at(gpu_uuid), options_.book->All());
  const uint64_t left_bytes = use.LeftBeside(slots);
  if (wanted_bytes <= left_bytes) return "";
  return Cat("GPU ", gpu_uuid, " has ", FormatSize(left_bytes),
             " that are promised to nobody, and ", FormatSize(wanted_bytes), " are needed for ",
             slots.size(),
             " slots: pods that run keep what they were given before the number of slots, the "
             "reserve or the policy was changed; more is free when they end");
}

absl::Status Allocator::Tell(SchedulerClient* scheduler, const Allocation& allocation) const {
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
