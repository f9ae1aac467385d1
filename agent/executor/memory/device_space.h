// SPDX-License-Identifier: Apache-2.0
// Where a session's allocations lie inside its range of device addresses. Pure bookkeeping: knows
// no CUDA and no memory. Ring thread only.
//
// An allocation of kLargeBytes or more has a span of its own, whole granules; smaller ones are
// slices of a granule (a slab) that they share. The caller maps memory behind a span before it uses
// it and takes it away before the addresses are given back:
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
inline constexpr uint64_t kSliceAlignment = 512;     // what cuMemAlloc gives on every GPU we know

constexpr uint64_t RoundUpToGranule(uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) & ~(kGranuleBytes - 1);
}

// Best fit over free addresses, the lowest of equals; neighbours are joined when they come back. Takes as long as
// looking one of the holes up, however many there are.
class FreeAddresses {
 public:
  FreeAddresses() = default;
  FreeAddresses(uint64_t begin, uint64_t size_bytes);
  // 0 when nothing is large enough.
  uint64_t Take(uint64_t size_bytes);
  void Give(uint64_t begin, uint64_t size_bytes);
  // True when everything that was there at first is back.
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

  // Addresses for `size_bytes` (a multiple of kGranuleBytes); 0 when none are left.
  uint64_t ReserveSpan(uint64_t size_bytes);
  void ReleaseSpan(uint64_t address, uint64_t size_bytes);

  void AddLarge(uint64_t address, uint64_t span_bytes, uint64_t size_bytes);
  void AddSlab(uint64_t address);
  // 0 when no slab has room. `size_bytes` is in 1 … kLargeBytes - 1.
  uint64_t TakeSlice(uint64_t size_bytes);

  // True when all bytes lie in one allocation that has not been retired.
  bool Contains(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const;

  // The same of one that has been retired and not freed, too.
  bool Holds(uint64_t address, uint64_t size_bytes) const;

  // The first half of a free: the tenant may not name the allocation any more. False when no
  // allocation begins here.
  [[nodiscard]] bool Retire(uint64_t address_untrusted);

  // The second half, once no work can touch it. The span that must now be unmapped, size 0 when its
  // slab is still in use.
  struct Span {
    uint64_t address;
    uint64_t size_bytes;
  };
  Span Free(uint64_t address);

  // Of an allocation with a span of its own; 0 for a slice.
  uint64_t SpanBytes(uint64_t address) const;

 private:
  struct Allocation {
    uint64_t size_bytes;  // as asked for
    uint64_t span_bytes;  // 0 for a slice
    bool retired;
  };

  // In which all bytes lie; null when there is none.
  const Allocation* Find(uint64_t address, uint64_t size_bytes) const;

  using Slabs = std::map<uint64_t, FreeAddresses>;
  // Does something with a slab whose largest hole may change by that.
  template <typename F>
  auto Change(Slabs::iterator slab, F change);

  FreeAddresses spans_;
  Slabs slabs_;
  std::set<std::pair<uint64_t, uint64_t>> slabs_by_room_;  // largest hole, begin
  std::map<uint64_t, Allocation> allocations_;
};

}  // namespace gpuloom::executor
