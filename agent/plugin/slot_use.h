// SPDX-License-Identifier: Apache-2.0
// What one GPU's slots and memory are promised to. An allocation keeps what a slot was when it was
// made, so after
// --slots or --reserve has changed slots of both sizes stand side by side: what is new gets only what is left.
//
// Counted by slot, not by allocation: of those with the same ID the latest counts, because the
// kubelet gives a slot to one container (or pod) at a time and does not say when it has taken it
// back.
//
// A device of a shape is no certain slots, only room for so many: which they are is decided when it
// is given, and stays so until its allocation is over, also for who gets the same device next.
// Meanwhile nobody gets them as single slots. Pure; a value.
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

// Which of its GPU's slots the allocation has.
std::vector<int> SlotsOf(const Allocation& allocation);

// What a slot of "auto" memory is for this allocation.
uint64_t AutoSlotBytesOf(const Allocation& allocation, const Capacity& capacity);

class SlotUse {
 public:
  // `allocations` of all GPUs, oldest first. `slot_bytes`: what a slot that is free now would be.
  SlotUse(const Capacity& capacity, const std::vector<Allocation>& allocations, uint64_t slot_bytes,
          bool overcommit);

  // Of the GPU's memory, without the reserve, what nobody but the holders of these slots was
  // promised.
  uint64_t LeftBeside(const std::vector<int>& slots) const;
  uint64_t promised_bytes() const { return promised_bytes_; }
  uint64_t room_bytes() const { return room_bytes_; }

  int slots() const { return slots_; }
  size_t held() const { return held_.size(); }
  // Of them, those that the GPU would not have with its present number of slots.
  size_t beyond() const;
  // Free slots for which no memory is left: not to be given out.
  const std::set<int>& withheld() const { return withheld_; }

  // The ID of the shape's device that has this slot; empty: none has.
  std::string ShapeWith(int slot) const;
  // Single slots that are not to be given: withheld, or a shape's.
  std::set<int> Closed() const;
  // Numbers of this shape's devices that can be given: those that are held, and as many more as
  // have room beside all that is.
  std::set<int> Places(int shape) const;
  // Those of this device; or free ones, the highest, because the kubelet prefers low ones for
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
