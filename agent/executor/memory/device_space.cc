// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/device_space.h"

#include <iterator>

namespace gpuloom::executor {
namespace {

// What a small allocation takes of its slab. Each begins at a multiple of the alignment, because
// all sizes are multiples of it.
constexpr uint64_t SliceBytes(uint64_t size_bytes) {
  return (size_bytes + kSliceAlignment - 1) & ~(kSliceAlignment - 1);
}

}  // namespace

FreeAddresses::FreeAddresses(uint64_t begin, uint64_t size_bytes) {
  if (size_bytes != 0) Add(begin, size_bytes);
}

void FreeAddresses::Add(uint64_t begin, uint64_t size_bytes) {
  free_.emplace(begin, size_bytes);
  by_size_.emplace(size_bytes, begin);
}

// Holes stand in both tables, by address and by size; only Add and Remove change them.
FreeAddresses::Free::iterator FreeAddresses::Remove(Free::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  return free_.erase(hole);
}

// From the beginning of the smallest hole that is large enough.
uint64_t FreeAddresses::Take(uint64_t size_bytes) {
  const auto found = by_size_.lower_bound({size_bytes, 0});
  if (found == by_size_.end()) return 0;
  const auto [hole_bytes, begin] = *found;
  Remove(free_.find(begin));
  if (hole_bytes != size_bytes) Add(begin + size_bytes, hole_bytes - size_bytes);
  return begin;
}

// Merges with the hole behind and the one before, so that two holes never touch.
void FreeAddresses::Give(uint64_t begin, uint64_t size_bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + size_bytes == next->first) {
    size_bytes += next->second;
    next = Remove(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size_bytes += before->second;
      Remove(before);
    }
  }
  Add(begin, size_bytes);
}

bool FreeAddresses::IsWhole(uint64_t begin, uint64_t size_bytes) const {
  return free_.size() == 1 && free_.begin()->first == begin && free_.begin()->second == size_bytes;
}

DeviceSpace::DeviceSpace(uint64_t begin, uint64_t size_bytes)
    : spans_(begin, size_bytes & ~(kGranuleBytes - 1)) {}

uint64_t DeviceSpace::ReserveSpan(uint64_t size_bytes) { return spans_.Take(size_bytes); }

void DeviceSpace::ReleaseSpan(uint64_t address, uint64_t size_bytes) {
  spans_.Give(address, size_bytes);
}

void DeviceSpace::AddLarge(uint64_t address, uint64_t span_bytes, uint64_t size_bytes) {
  allocations_[address] = Allocation{size_bytes, span_bytes, false};
}

template <typename F>
auto DeviceSpace::Change(Slabs::iterator slab, F change) {
  slabs_by_room_.erase({slab->second.largest_bytes(), slab->first});
  const auto result = change(&slab->second);
  slabs_by_room_.emplace(slab->second.largest_bytes(), slab->first);
  return result;
}

void DeviceSpace::AddSlab(uint64_t address) {
  slabs_.emplace(address, FreeAddresses(address, kGranuleBytes));
  slabs_by_room_.emplace(kGranuleBytes, address);
}

// From the slab whose largest hole is the smallest that will do: full slabs fill up, and the others
// may become empty and go back.
uint64_t DeviceSpace::TakeSlice(uint64_t size_bytes) {
  const uint64_t slice_bytes = SliceBytes(size_bytes);
  const auto found = slabs_by_room_.lower_bound({slice_bytes, 0});
  if (found == slabs_by_room_.end()) return 0;
  const uint64_t address = Change(slabs_.find(found->second), [slice_bytes](FreeAddresses* slab) {
    return slab->Take(slice_bytes);
  });
  allocations_[address] = Allocation{size_bytes, 0, false};
  return address;
}

// Only the allocation that begins at or before `address` can contain it. Bytes behind its size do
// not belong to it, even in its span: the program did not request them. Subtracted, not added, so
// that no number of a tenant's overflows.
const DeviceSpace::Allocation* DeviceSpace::Find(uint64_t address, uint64_t size_bytes) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  const Allocation& allocation = it->second;
  const uint64_t offset = address - it->first;
  return offset <= allocation.size_bytes && size_bytes <= allocation.size_bytes - offset
             ? &allocation
             : nullptr;
}

bool DeviceSpace::Contains(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
  const Allocation* allocation = Find(address_untrusted, size_bytes_untrusted);
  return allocation != nullptr && !allocation->retired;
}

bool DeviceSpace::Holds(uint64_t address, uint64_t size_bytes) const {
  return Find(address, size_bytes) != nullptr;
}

// A second free of the same address is refused while the first waits for earlier work.
bool DeviceSpace::Retire(uint64_t address_untrusted) {
  const auto it = allocations_.find(address_untrusted);
  if (it == allocations_.end() || it->second.retired) return false;
  it->second.retired = true;
  return true;
}

uint64_t DeviceSpace::SpanBytes(uint64_t address) const {
  const auto it = allocations_.find(address);
  return it == allocations_.end() ? 0 : it->second.span_bytes;
}

// A large allocation's span is returned as it is; of a small one the slab is, when nothing else is
// in it.
DeviceSpace::Span DeviceSpace::Free(uint64_t address) {
  const auto it = allocations_.find(address);
  if (it == allocations_.end()) return {0, 0};
  const Allocation allocation = it->second;
  allocations_.erase(it);
  if (allocation.span_bytes != 0) return {address, allocation.span_bytes};
  const auto slab = std::prev(slabs_.upper_bound(address));
  const bool whole = Change(slab, [&](FreeAddresses* free) {
    free->Give(address, SliceBytes(allocation.size_bytes));
    return free->IsWhole(slab->first, kGranuleBytes);
  });
  if (!whole) return {0, 0};
  const Span span{slab->first, kGranuleBytes};
  slabs_by_room_.erase({kGranuleBytes, slab->first});
  slabs_.erase(slab);
  return span;
}

}  // namespace gpuloom::executor
