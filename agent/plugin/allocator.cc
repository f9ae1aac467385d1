// SPDX-License-Identifier: Apache-2.0
// What is given to which container, and taken back. What its pod is granted: allocator_grants.cc.
//
// The locks: allocation_mutex_ and each GPU's gate span a look at the book and the write that rests
// on it; no two of them are ever held together. They do not keep out another agent, which shares the
// book while one replaces the other, nor Sweep, which only the agent's main thread calls.
#include "agent/plugin/allocator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "agent/cat.h"
#include "agent/identity/resource_name.h"
#include "agent/inventory/slots.h"
#include "agent/policy/capacity.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// A container has one CUDA device, so it cannot have two places for a shape.
absl::Status TwoDevices(const std::string& resource, size_t count) {
  return absl::FailedPreconditionError(Cat(
      "slots: a container asks for ", resource, ": ", count,
      ", and can have one only: its slots are one CUDA device; ask for 1, or for a larger shape"));
}

}  // namespace

Allocator::Allocator(Options options)
    : options_(std::move(options)),
      resolver_(options_.pod_resources, options_.clock, options_.patience),
      collector_(options_.collector_times) {
  for (const auto& [uuid, capacity] : options_.capacities) gates_.try_emplace(uuid, capacity);
}

// A refusal here fails the pod for good, so only what no retry can correct is refused: a GPU that
// this agent does not have or does not give out, and slots that another container holds. The policy
// is not checked here: the kubelet does not say yet which pod it is.
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
  // Again, now that there is a record: who orders to drain from now on finds it and waits for it.
  if (const std::string closed = Closed(*gpu_uuid); !closed.empty()) {
    (void)GiveBackSlots(*allocation);  // Sweep retries what cannot be removed now
    return absl::FailedPreconditionError(closed);
  }
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
  // Which slots a shape has the kubelet does not know.
  if (!options_.shapes.empty()) {
    if (absl::Status status = KnowsWhatIsHeld(); !status.ok()) return status;
  }
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
  if (allocation.ok()) ReportUse(gpu_uuid);
  return allocation;
}

absl::Status Allocator::KnowsWhatIsHeld() const {
  const std::vector<std::string> unread = options_.book->Unread();
  if (unread.empty()) return absl::OkStatus();
  return absl::UnavailableError(Cat(
      "state: the record of allocation ", unread.front(),
      " cannot be read now, and what its "
      "container holds of the GPU is not known; see the agent's log, and the node's kernel log"));
}

absl::Status Allocator::GiveBackSlots(const Allocation& allocation) {
  const MutexLock lock(allocation_mutex_);
  absl::Status removed = options_.book->Remove(allocation.name);
  // The use of a GPU that is gone is not reported.
  if (options_.capacities.contains(allocation.gpu_uuid)) ReportUse(allocation.gpu_uuid);
  return removed;
}

void Allocator::ReportUse(const std::string& gpu_uuid) const {
  if (!options_.on_use) return;
  options_.on_use(gpu_uuid, UseOf(options_.capacities.at(gpu_uuid), options_.book->All()));
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
  (void)GiveBackSlots(*allocation);  // Sweep retries what cannot be removed now
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
      absl::Status status = EndAtScheduler(*allocation);
      // Last: with the record the next sweep would lose the name to try again with, and the slots
      // would be free while the scheduler still serves their holder.
      if (status.ok()) status = GiveBackSlots(*allocation);
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
  // Nor is it known which libraries these use.
  const std::vector<std::string> unread = options_.book->Unread();
  for (const std::string& name : unread) {
    troubles.push_back(Cat("state: the record of allocation ", name, " cannot be read"));
  }
  if (!unread.empty()) return troubles;
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

absl::Status Allocator::EndAtScheduler(const Allocation& allocation) const {
  const std::string& gpu_uuid = allocation.gpu_uuid;
  // If the GPU is no longer in the inventory, no scheduler has the allocation.
  if (!options_.capacities.contains(gpu_uuid)) return absl::OkStatus();
  const auto scheduler = options_.scheduler(gpu_uuid);
  if (scheduler.ok()) return (*scheduler)->RemoveAllocation(allocation.name);
  // One that runs and is silent may serve it. Where none runs none does: of a GPU that is lost none will ever start. One
  // that starts after all learns the allocations by Restore, from the records.
  const bool is_gone = options_.scheduler_is_gone && options_.scheduler_is_gone(gpu_uuid);
  return is_gone ? absl::OkStatus() : scheduler.status();
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

std::map<std::string, uint64_t> Allocator::SlotsHeld() const {
  const std::vector<Allocation> allocations = options_.book->All();
  const std::map<std::string, size_t> devices = DevicesLeft(allocations);
  std::map<std::string, uint64_t> slots;
  const MutexLock lock(collector_mutex_);
  for (const Allocation& allocation : allocations) {
    const auto left = devices.find(allocation.name);
    if (left == devices.end()) continue;
    // A device is one slot, or of a shape, and then the only one.
    slots[allocation.name] =
        collector_.IsGone(allocation.name)
            ? 0
            : SlotsOf(allocation).size() * left->second / allocation.device_ids.size();
  }
  return slots;
}

std::map<std::string, SlotUse> Allocator::SlotUses() const {
  const std::vector<Allocation> allocations = options_.book->All();
  std::map<std::string, SlotUse> uses;
  for (const auto& [uuid, capacity] : options_.capacities) {
    uses.emplace(uuid, UseOf(capacity, allocations));
  }
  return uses;
}

}  // namespace gpuloom
