// The address ranges that a grid touched last, so that an access rarely asks the AddressSpace.
// One per running grid, used by its thread only.
#pragma once

#include "agent/softgpu/exec/address_space.h"

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

  // Whether all of [address, address + size) may be read, or written.
  [[nodiscard]] bool Allows(uint64_t address, uint64_t size_bytes, bool write) {
    for (uint32_t i = 0; i < kRanges; ++i) {
      const AddressSpace::Range& range = ranges_[i];
      if (address >= range.begin && address < range.end && size_bytes <= range.end - address) {
        return range.writable || !write;
      }
    }
    return Ask(address, size_bytes, write);
  }

 private:
  static constexpr uint32_t kRanges = 4;  // a kernel's usual number of arrays

  bool Ask(uint64_t address, uint64_t size_bytes, bool write) {
    const AddressSpace::Range range = memory_.Find(address);
    if (address < range.begin || address >= range.end || size_bytes > range.end - address) {
      return false;
    }
    ranges_[next_] = range;
    next_ = (next_ + 1) % kRanges;
    return range.writable || !write;
  }

  const AddressSpace& memory_;
  uint64_t generation_;
  AddressSpace::Range ranges_[kRanges];
  uint32_t next_ = 0;
};

}  // namespace gpuloom::softgpu
