// SPDX-License-Identifier: Apache-2.0
// Lays out a session's allocations in its device address range. Pure bookkeeping: knows nothing of
// CUDA or memory. Ring thread only.
//
// An allocation of kLargeBytes or more has its own span of whole granules; smaller ones are slices
// of a shared granule (a slab). The caller maps memory at a span before using it, and unmaps it
// before releasing the addresses:
//
//   large:  ReserveSpan → map → AddLarge               … Retire → wait → Free → unmap → ReleaseSpan
//   small:  TakeSlice, or ReserveSpan → map → AddSlab → TakeSlice    … Retire → wait → Free
//                                            Free tells when a slab has become empty: unmap,
//                                            ReleaseSpan
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace gpuloom::executor {

inline constexpr uint64_t kGranuleBytes = 2u << 20;  // the unit of quota and of cuMemCreate
inline constexpr uint64_t kLargeBytes = 1u << 20;    // above half a granule sharing would waste
inline constexpr uint64_t kSliceAlignment = 512;     // cuMemAlloc's alignment on every GPU we know

constexpr uint64_t RoundUpToGranule(uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) & ~(kGranuleBytes - 1);
}

// Best fit over free addresses, the lowest among equals; adjacent holes are merged. Every operation
// takes about one lookup, however many holes there are.
class FreeAddresses {
 public:
  FreeAddresses() = default;
  FreeAddresses(uint64_t begin, uint64_t size_bytes);
  // Returns 0 if no hole is large enough.
  uint64_t Take(uint64_t size_bytes);
  void Give(uint64_t begin, uint64_t size_bytes);
  // Returns true if the initial range is completely free again.
  bool IsWhole(uint64_t begin, uint64_t size_bytes) const;

  uint64_t largest_bytes() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  using Free = std::map<uint64_t, uint64_t>;  // begin → size
  void Add(uint64_t begin, uint64_t size_bytes);
  Free::iterator Remove(Free::iterator hole);

  Free free_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // size, begin
};

class DeviceSpace {
 public:
  // `begin` is a multiple of kGranuleBytes, above 0.
  DeviceSpace(uint64_t begin, uint64_t size_bytes);

  // Returns addresses for `size_bytes` (a multiple of kGranuleBytes); 0 if none are left.
  uint64_t ReserveSpan(uint64_t size_bytes);
  void ReleaseSpan(uint64_t address, uint64_t size_bytes);

  void AddLarge(uint64_t address, uint64_t span_bytes, uint64_t size_bytes);
  void AddSlab(uint64_t address);
  // Returns 0 if no slab has room. `size_bytes` is in 1 … kLargeBytes - 1.
  uint64_t TakeSlice(uint64_t size_bytes);

  // Returns true if all bytes lie in one allocation that has not been retired.
  bool Contains(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const;

  // Like Contains, but also true for an allocation that has been retired and not freed.
  bool Holds(uint64_t address, uint64_t size_bytes) const;

  // First half of a free: the tenant may not name the allocation any more. Returns false if no
  // allocation begins here.
  [[nodiscard]] bool Retire(uint64_t address_untrusted);

  // Second half, once no work can touch it. Returns the span that must now be unmapped, with size 0
  // if its slab is still in use.
  struct Span {
    uint64_t address;
    uint64_t size_bytes;
  };
  Span Free(uint64_t address);

  // For an allocation with its own span; 0 for a slice.
  uint64_t SpanBytes(uint64_t address) const;

 private:
  struct Allocation {
    uint64_t size_bytes;  // as requested
    uint64_t span_bytes;  // 0 for a slice
    bool retired;
  };

  // The allocation in which all bytes lie; null if there is none.
  const Allocation* Find(uint64_t address, uint64_t size_bytes) const;

  using Slabs = std::map<uint64_t, FreeAddresses>;
  // Applies `change` to a slab, and updates slabs_by_room_.
  template <typename F>
  auto Change(Slabs::iterator slab, F change);

  FreeAddresses spans_;
  Slabs slabs_;
  std::set<std::pair<uint64_t, uint64_t>> slabs_by_room_;  // largest hole, begin
  std::map<uint64_t, Allocation> allocations_;
};

}  // namespace gpuloom::executor
