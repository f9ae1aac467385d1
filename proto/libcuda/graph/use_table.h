// SPDX-License-Identifier: Apache-2.0
// How often the nodes of a graph, its child graphs and bodies allocate and free each address. Open addressing; all
// zero is a valid empty table; the owner calls Free. Not thread-safe, no C++ library: see graph.h.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::graph {

struct AddressUses {
  CUdeviceptr address;  // 0: nothing is here
  uint32_t allocations;
  uint32_t frees;
};

class UseTable {
 public:
  // Returns null if nothing was noted for the address.
  AddressUses* Find(CUdeviceptr address) const {
    if (capacity_ == 0 || address == 0) return nullptr;
    AddressUses* place = SlotFor(address);
    return place->address == 0 ? nullptr : place;
  }
  // Makes room for `more` addresses. False if out of memory; then nothing has changed.
  [[nodiscard]] bool Reserve(size_t more) {
    size_t capacity = capacity_ == 0 ? 16 : capacity_;
    // At most half full, so that searches stay short.
    while ((count_ + more) * 2 > capacity) capacity *= 2;
    if (capacity == capacity_) return true;
    auto* uses = static_cast<AddressUses*>(calloc(capacity, sizeof(AddressUses)));
    if (uses == nullptr) return false;
    UseTable larger;
    larger.uses_ = uses;
    larger.capacity_ = capacity;
    larger.Take(this);
    *this = larger;
    return true;
  }
  // Adds the address, or finds it; it must not be 0. Unless it is there already, Reserve must have made room for it.
  AddressUses* Add(CUdeviceptr address) {
    AddressUses* place = SlotFor(address);
    if (place->address == 0) {
      place->address = address;
      ++count_;
    }
    return place;
  }
  // Adds all that `from` has noted, which is empty afterwards. Reserve must have made room for it.
  void Take(UseTable* from) {
    for (size_t i = 0; i < from->capacity_; ++i) {
      const AddressUses& uses = from->uses_[i];
      if (uses.address == 0) continue;
      AddressUses* sum = Add(uses.address);
      sum->allocations += uses.allocations;
      sum->frees += uses.frees;
    }
    from->Free();
  }
  void Free() {
    free(uses_);
    uses_ = nullptr;
    capacity_ = count_ = 0;
  }
  size_t count() const { return count_; }

 private:
  AddressUses* SlotFor(CUdeviceptr address) const {
    size_t i = ((address >> 9) * 0x9e3779b97f4a7c15) >> 32 & (capacity_ - 1);
    while (uses_[i].address != 0 && uses_[i].address != address) i = (i + 1) & (capacity_ - 1);
    return &uses_[i];
  }

  AddressUses* uses_ = nullptr;
  size_t capacity_ = 0;  // 0 or a power of two
  size_t count_ = 0;
};

}  // namespace gpuloom::graph
