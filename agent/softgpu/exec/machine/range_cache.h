// SPDX-License-Identifier: Apache-2.0
// The address ranges that a grid touched last, so that an access rarely asks the AddressSpace. Each
// thread that runs a grid's blocks has its own.
#pragma once

#include "agent/softgpu/exec/machine/address_space.h"

namespace gpuloom::softgpu {

class RangeCache {
 public:
  explicit RangeCache(const AddressSpace& memory)
      : memory_(memory), generation_(memory.generation()) {}

  // Forgets everything when a range was unmapped. Called between instructions, often.
  void Refresh() {
    const uint64_t now = memory_.generation();
    if (now == generation_) return;
    generation_ = now;
    for (AddressSpace::Range& range : ranges_) range = {};
  }

  // The range that holds `address`, or {0, 0}.
  [[nodiscard]] AddressSpace::Range RangeOf(uint64_t address) {
    const AddressSpace::Range& last = ranges_[last_];
    return Holds(last, address) ? last : Search(address);
  }

  // Whether all of [address, address + size) may be read, or written.
  [[nodiscard]] bool Allows(uint64_t address, uint64_t size_bytes, bool write) {
    const AddressSpace::Range range = RangeOf(address);
    return range.end != 0 && size_bytes <= range.end - address && (range.writable || !write);
  }

 private:
  static constexpr uint32_t kRanges = 16;  // more than the arrays of nearly every kernel

  static bool Holds(const AddressSpace::Range& range, uint64_t address) {
    return address >= range.begin && address < range.end;
  }
  [[gnu::noinline]] AddressSpace::Range Search(uint64_t address) {
    for (uint32_t i = 0; i < kRanges; ++i) {
      if (!Holds(ranges_[i], address)) continue;
      last_ = i;
      return ranges_[i];
    }
    const AddressSpace::Range range = memory_.Find(address);
    if (!Holds(range, address)) return {};
    ranges_[next_] = range;
    last_ = next_;
    next_ = (next_ + 1) % kRanges;
    return range;
  }

  const AddressSpace& memory_;
  uint64_t generation_;
  AddressSpace::Range ranges_[kRanges];
  uint32_t last_ = 0;  // the range that was looked up last
  uint32_t next_ = 0;  // the range that is replaced next
};

}  // namespace gpuloom::softgpu
