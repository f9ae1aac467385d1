// SPDX-License-Identifier: Apache-2.0
// Splits a window of addresses into disjoint ranges: device and host addresses that the tenants of
// one GPU see unchanged. Pure bookkeeping; the scheduler's thread only. Who may have how much:
// address_share.h.
#pragma once

#include <cstdint>
#include <map>

#include "proto/channel/region.h"

namespace gpuloom::scheduler {

// Measured on the real driver: device memory can be mapped at a requested address here (and 4 TiB
// reserved within microseconds), and neither the kernel's mmap nor a position-independent
// executable (0x55…, 0x56…) comes near.
inline constexpr channel::Range kDeviceWindow{0x2000'0000'0000, 0x3500'0000'0000};
// Above the heap of AddressSanitizer (0x6000'…, 4 TiB and its tables), which a tenant or our own
// tests may be built with.
inline constexpr channel::Range kHostWindow{0x6800'0000'0000, 0x0800'0000'0000};

// Ranges begin at multiples of this and have sizes that are multiples of it, so that a window does
// not fragment into pieces too small to use.
inline constexpr uint64_t kRangeUnitBytes = uint64_t{1} << 30;

class AddressWindow {
 public:
  explicit AddressWindow(channel::Range window) : window_(window), free_bytes_(window.size_bytes) {}

  // Takes the lowest free range of `size_bytes` (a multiple of kRangeUnitBytes); false if there is
  // none. Lowest first keeps ranges together: repeated taking and freeing leaves gaps in one place,
  // not all over the window.
  [[nodiscard]] bool Take(uint64_t size_bytes, channel::Range* range);
  // Returns a range to the window. Ignored unless exactly this range was taken here.
  void Free(const channel::Range& range);

  bool Contains(const channel::Range& range) const {
    return window_.Contains(range.begin, range.size_bytes);
  }
  uint64_t size_bytes() const { return window_.size_bytes; }
  uint64_t end() const { return window_.begin + window_.size_bytes; }
  uint64_t free_bytes() const { return free_bytes_; }
  size_t taken_count() const { return taken_.size(); }

 private:
  channel::Range window_;
  uint64_t free_bytes_;
  std::map<uint64_t, uint64_t> taken_;  // begin → size
};

}  // namespace gpuloom::scheduler
