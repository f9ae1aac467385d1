// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/slot_use.h"

#include <algorithm>

namespace gpuloom {
namespace {

// What each slot of the allocation was promised. An unbound one will get a rule that is not known
// yet: "auto" stands for it.
uint64_t SlotBytesOf(const Allocation& allocation, const Capacity& capacity) {
  if (!allocation.binding.has_value()) return AutoSlotBytesOf(allocation, capacity);
  return allocation.binding->quota_bytes / SlotsOf(allocation).size();
}

}  // namespace

// A record without slots is one of single slots, whose numbers are in the IDs.
std::vector<int> SlotsOf(const Allocation& allocation) {
  if (!allocation.slots.empty()) return allocation.slots;
  std::vector<int> slots;
  for (const std::string& id : allocation.device_ids) {
    if (const auto device = ParseDeviceId(id)) slots.push_back(device->number);
  }
  return slots;
}

uint64_t AutoSlotBytesOf(const Allocation& allocation, const Capacity& capacity) {
  if (allocation.auto_slot_bytes != 0) return allocation.auto_slot_bytes;
  // For an older agent's allocation only the granted memory is known.
  const size_t slots = SlotsOf(allocation).size();
  if (allocation.binding.has_value() && allocation.binding->quota_bytes != 0 && slots != 0) {
    return allocation.binding->quota_bytes / slots;
  }
  return AutoSlotBytes(capacity);
}

SlotUse::SlotUse(const Capacity& capacity, const std::vector<Allocation>& allocations,
                 uint64_t slot_bytes, bool overcommit)
    : slots_(capacity.slots),
      room_bytes_(capacity.total_bytes - std::min(capacity.total_bytes, capacity.reserve_bytes)) {
  for (const Allocation& allocation : allocations) {
    if (allocation.gpu_uuid != capacity.gpu) continue;
    const std::optional<DeviceId> first = ParseDeviceId(allocation.device_ids.front());
    const std::vector<int> slots = SlotsOf(allocation);
    // Oldest first, so the latest allocation of a slot is the one that stays.
    for (const int slot : slots) held_[slot] = SlotBytesOf(allocation, capacity);
    if (!first.has_value() || first->shape == 1) continue;
    for (const int slot : slots) shape_with_[slot] = allocation.device_ids.front();
    shaped_[{first->shape, first->number}] = slots;
  }
  for (const auto& [slot, bytes] : held_) promised_bytes_ += bytes;
  if (overcommit) return;
  // Promises may exceed the room: --reserve may have grown since, or `overcommit` been taken away.
  uint64_t left_bytes = room_bytes_ - std::min(room_bytes_, promised_bytes_);
  for (int slot = 0; slot < slots_; ++slot) {
    if (held_.contains(slot)) continue;
    // The lowest free slots have the memory that is left; all after them are withheld.
    if (slot_bytes > left_bytes) {
      withheld_.insert(slot);
    } else {
      left_bytes -= slot_bytes;
    }
  }
}

uint64_t SlotUse::LeftBeside(const std::vector<int>& slots) const {
  uint64_t others_bytes = promised_bytes_;
  for (const int slot : slots) {
    const auto held = held_.find(slot);
    // The slot belongs to this holder, or to a pod that has ended and is not collected yet: the kubelet gives a slot to
    // one container at a time, so what the earlier one was promised is free.
    if (held != held_.end()) others_bytes -= held->second;
  }
  return room_bytes_ - std::min(room_bytes_, others_bytes);
}

std::string SlotUse::ShapeWith(int slot) const {
  const auto found = shape_with_.find(slot);
  return found == shape_with_.end() ? "" : found->second;
}

std::set<int> SlotUse::Closed() const {
  std::set<int> closed = withheld_;
  // Slots that are held singly are not closed: the kubelet itself counts their holders.
  for (const auto& [slot, device] : shape_with_) closed.insert(slot);
  return closed;
}

std::vector<int> SlotUse::Free() const {
  std::vector<int> free;
  for (int slot = 0; slot < slots_; ++slot) {
    if (!held_.contains(slot) && !withheld_.contains(slot)) free.push_back(slot);
  }
  return free;
}

std::set<int> SlotUse::Places(int shape) const {
  size_t room = Free().size() / static_cast<size_t>(shape);
  std::set<int> places;
  // A free device of a shape is only a place, so it does not matter which numbers are shown: the
  // lowest.
  for (int number = 0; number < slots_ / shape; ++number) {
    if (shaped_.contains({shape, number})) {
      places.insert(number);
    } else if (room > 0) {
      places.insert(number);
      --room;
    }
  }
  return places;
}

std::vector<int> SlotUse::SlotsFor(const DeviceId& device) const {
  const auto known = shaped_.find({device.shape, device.number});
  // If --slots was reduced, the GPU may have lost some of them.
  if (known != shaped_.end() &&
      std::ranges::all_of(known->second, [this](int slot) { return slot < slots_; })) {
    return known->second;
  }
  std::vector<int> free = Free();
  const auto wanted = static_cast<size_t>(device.shape);
  if (free.size() < wanted) return {};
  free.erase(free.begin(), free.end() - static_cast<std::ptrdiff_t>(wanted));
  return free;
}

size_t SlotUse::beyond() const {
  return static_cast<size_t>(std::distance(held_.lower_bound(slots_), held_.end()));
}

}  // namespace gpuloom
