#include "agent/executor/device_space.h"

#include <iterator>

namespace gpuloom::executor {
namespace {

constexpr uint64_t SliceBytes(uint64_t size_bytes) {
  return (size_bytes + kSliceAlignment - 1) & ~(kSliceAlignment - 1);
}

}  // namespace

FreeAddresses::FreeAddresses(uint64_t begin, uint64_t size_bytes) {
  if (size_bytes != 0) free_.emplace(begin, size_bytes);
}

uint64_t FreeAddresses::Take(uint64_t size_bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size_bytes) continue;
    const uint64_t begin = it->first;
    const uint64_t left = it->second - size_bytes;
    it = free_.erase(it);
    if (left != 0) free_.emplace_hint(it, begin + size_bytes, left);
    return begin;
  }
  return 0;
}

void FreeAddresses::Give(uint64_t begin, uint64_t size_bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + size_bytes == next->first) {
    size_bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size_bytes;
      return;
    }
  }
  free_.emplace_hint(next, begin, size_bytes);
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

void DeviceSpace::AddSlab(uint64_t address) {
  slabs_.emplace(address, FreeAddresses(address, kGranuleBytes));
}

uint64_t DeviceSpace::TakeSlice(uint64_t size_bytes) {
  for (auto& [begin, slab] : slabs_) {
    const uint64_t address = slab.Take(SliceBytes(size_bytes));
    if (address == 0) continue;
    allocations_[address] = Allocation{size_bytes, 0, false};
    return address;
  }
  return 0;
}

bool DeviceSpace::Contains(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
  auto it = allocations_.upper_bound(address_untrusted);
  if (it == allocations_.begin()) return false;
  --it;
  const Allocation& allocation = it->second;
  const uint64_t offset = address_untrusted - it->first;
  return !allocation.retired && offset <= allocation.size_bytes &&
         size_bytes_untrusted <= allocation.size_bytes - offset;
}

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

DeviceSpace::Span DeviceSpace::Free(uint64_t address) {
  const auto it = allocations_.find(address);
  if (it == allocations_.end()) return {0, 0};
  const Allocation allocation = it->second;
  allocations_.erase(it);
  if (allocation.span_bytes != 0) return {address, allocation.span_bytes};
  const auto slab = std::prev(slabs_.upper_bound(address));
  slab->second.Give(address, SliceBytes(allocation.size_bytes));
  if (!slab->second.IsWhole(slab->first, kGranuleBytes)) return {0, 0};
  const Span span{slab->first, kGranuleBytes};
  slabs_.erase(slab);
  return span;
}

}  // namespace gpuloom::executor
