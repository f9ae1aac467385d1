// SPDX-License-Identifier: Apache-2.0
// To whom one GPU's slots and memory are promised. An allocation keeps the slot size of the time when it was made, so
// after --slots or --reserve has changed, slots of both sizes exist side by side; new allocations get only what is
// left.
//
// Use is counted by slot, not by allocation: of several allocations with the same device ID the latest counts, because
// the kubelet gives a device to one container (or pod) at a time and does not say when it has taken it back.
//
// A device of a shape does not stand for particular slots, only for room for that many. Which slots it has is decided
// when it is given, and stays so until its allocation is over, even if another container gets the same device next.
// Meanwhile its slots are not given as single slots. A value without locks; its functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/identity/allocation.h"
#include "agent/inventory/slots.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// The numbers of the GPU's slots that the allocation has.
std::vector<int> SlotsOf(const Allocation& allocation);

// The size of a slot of "auto" memory for this allocation.
uint64_t AutoSlotBytesOf(const Allocation& allocation, const Capacity& capacity);

class SlotUse {
 public:
  // `allocations`: those of all GPUs, oldest first. `slot_bytes`: the size of a slot that is given next.
  SlotUse(const Capacity& capacity, const std::vector<Allocation>& allocations, uint64_t slot_bytes,
          bool overcommit);

  // The GPU's memory, without the reserve, that is not promised to others than the holders of these slots.
  uint64_t LeftBeside(const std::vector<int>& slots) const;
  uint64_t promised_bytes() const { return promised_bytes_; }
  uint64_t room_bytes() const { return room_bytes_; }

  int slots() const { return slots_; }
  size_t held() const { return held_.size(); }
  // The held slots that exceed the GPU's present number of slots.
  size_t beyond() const;
  // Free slots that must not be given because no memory is left for them.
  const std::set<int>& withheld() const { return withheld_; }

  // The ID of the shape's device that has this slot; empty: none.
  std::string ShapeWith(int slot) const;
  // Single slots that must not be given: withheld ones, and those of shapes.
  std::set<int> Closed() const;
  // The numbers of this shape's devices that can be given: those that are held, and as many more as there is room for.
  std::set<int> Places(int shape) const;
  // The slots of this device if it is held; otherwise free ones, the highest, because the kubelet prefers low ones for
  // single slots. Empty: too few are free.
  std::vector<int> SlotsFor(const DeviceId& device) const;
  // Neither held nor withheld, ascending.
  std::vector<int> Free() const;

 private:
  const int slots_;
  uint64_t room_bytes_ = 0;
  uint64_t promised_bytes_ = 0;
  std::map<int, uint64_t> held_;  // bytes by slot
  std::set<int> withheld_;
  std::map<int, std::string> shape_with_;                   // its device by slot
  std::map<std::pair<int, int>, std::vector<int>> shaped_;  // slots by shape and number
};

}  // namespace gpuloom
