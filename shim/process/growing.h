// SPDX-License-Identifier: Apache-2.0
// Address ranges in growing arrays, sorted by where they begin. Not thread-safe: the array's own lock is held. The
// arrays own nothing but their memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/libcuda/growing.h"

namespace gpuloom {

// For values with `uint64_t begin, size_bytes` sorted by begin: the last that begins at or before
// `address`, or count().
template <typename T>
size_t FindAtOrBefore(const Growing<T>& ranges, uint64_t address) {
  size_t low = 0;
  size_t high = ranges.count();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (ranges[middle].begin <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? ranges.count() : low - 1;
}

// The range that contains all of [address, address + size_bytes), or nullptr.
template <typename T>
T* FindRange(Growing<T>& ranges, uint64_t address, uint64_t size_bytes) {
  const size_t i = FindAtOrBefore(ranges, address);
  if (i == ranges.count()) return nullptr;
  T& range = ranges[i];
  const uint64_t offset = address - range.begin;
  if (offset >= range.size_bytes || size_bytes > range.size_bytes - offset) return nullptr;
  return &range;
}

template <typename T>
[[nodiscard]] bool InsertSorted(Growing<T>* ranges, const T& range) {
  const size_t i = FindAtOrBefore(*ranges, range.begin);
  return ranges->Insert(i == ranges->count() ? 0 : i + 1, range);
}

}  // namespace gpuloom
