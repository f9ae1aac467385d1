// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/address_window.h"

namespace gpuloom::scheduler {

bool AddressWindow::Take(uint64_t size_bytes, channel::Range* range) {
  if (size_bytes == 0 || size_bytes % kRangeUnitBytes != 0) return false;
  // First fit, from below: between two taken ranges, or behind the last one.
  uint64_t candidate = window_.begin;
  for (const auto& [taken, bytes] : taken_) {
    if (taken - candidate >= size_bytes) break;
    candidate = taken + bytes;
  }
  if (!window_.Contains(candidate, size_bytes)) return false;
  taken_.emplace(candidate, size_bytes);
  free_bytes_ -= size_bytes;
  *range = channel::Range{candidate, size_bytes};
  return true;
}

// Only exactly what was taken: AddressShare::Free offers a range to several windows, of which one
// has it.
void AddressWindow::Free(const channel::Range& range) {
  const auto it = taken_.find(range.begin);
  if (it == taken_.end() || it->second != range.size_bytes) return;
  taken_.erase(it);
  free_bytes_ += range.size_bytes;
}

}  // namespace gpuloom::scheduler
