// SPDX-License-Identifier: Apache-2.0
// The live objects of one kind, to distinguish their handles from other values that a program may pass. Open addressing
// over addresses. Owns its slots, not the objects. Not thread-safe; constant-initialised, never destroyed.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>

namespace gpuloom::graph {

class HandleSet {
 public:
  bool Contains(const void* handle) const {
    if (capacity_ == 0 || handle == nullptr) return false;
    for (size_t i = Home(handle);; i = Next(i)) {
      if (slots_[i] == handle) return true;
      if (slots_[i] == nullptr) return false;
    }
  }
  // False if out of memory.
  [[nodiscard]] bool Add(const void* handle) {
    // At most half full, so that searches stay short.
    if ((count_ + 1) * 2 > capacity_ && !Grow()) return false;
    size_t i = Home(handle);
    while (slots_[i] != nullptr) i = Next(i);
    slots_[i] = handle;
    ++count_;
    return true;
  }
  void Remove(const void* handle) {
    if (!Contains(handle)) return;
    size_t hole = Home(handle);
    while (slots_[hole] != handle) hole = Next(hole);
    // Moves back what was put after the hole because its home was taken.
    for (size_t i = Next(hole); slots_[i] != nullptr; i = Next(i)) {
      const size_t home = Home(slots_[i]);
      const bool stays = hole < i ? home > hole && home <= i : home > hole || home <= i;
      if (!stays) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = nullptr;
    --count_;
  }
  // The i-th slot for walks: null when it is empty.
  size_t capacity() const { return capacity_; }
  const void* slot(size_t i) const { return slots_[i]; }

 private:
  size_t Home(const void* handle) const {
    const uint64_t mixed = (reinterpret_cast<uint64_t>(handle) >> 4) * 0x9e3779b97f4a7c15;
    return (mixed >> 32) & (capacity_ - 1);
  }
  size_t Next(size_t i) const { return (i + 1) & (capacity_ - 1); }
  bool Grow() {
    const size_t old_capacity = capacity_;
    const void** old = slots_;
    const size_t capacity = old_capacity == 0 ? 64 : old_capacity * 2;
    auto** slots = static_cast<const void**>(calloc(capacity, sizeof(void*)));
    if (slots == nullptr) return false;
    slots_ = slots;
    capacity_ = capacity;
    for (size_t k = 0; k < old_capacity; ++k) {
      if (old[k] == nullptr) continue;
      size_t i = Home(old[k]);
      while (slots_[i] != nullptr) i = Next(i);
      slots_[i] = old[k];
    }
    free(old);
    return true;
  }

  const void** slots_ = nullptr;
  size_t capacity_ = 0;  // 0 or a power of two
  size_t count_ = 0;
};

}  // namespace gpuloom::graph
