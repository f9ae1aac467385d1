// A window of addresses, cut into disjoint ranges: device addresses and host addresses that tenants
// of one GPU see as they are. Pure bookkeeping, one thread.
#pragma once

#include <cstdint>
#include <map>

#include "proto/channel/region.h"

namespace gpuloom::scheduler {

// Measured on the real driver: device memory can be mapped at a wanted address here (and 4 TiB be
// reserved within microseconds), and neither the kernel's mmap nor a position-independent executable
// (0x55…, 0x56…) comes near.
inline constexpr channel::Range kDeviceWindow{0x2000'0000'0000, 0x3500'0000'0000};
// Behind the heap of AddressSanitizer (0x6000'…, 4 TiB and its tables), which a tenant or our own
// tests may be built with.
inline constexpr channel::Range kHostWindow{0x6800'0000'0000, 0x0800'0000'0000};

// Twice the quota leaves room for fragmentation; 4 GiB keeps small quotas usable when raised.
inline constexpr uint64_t kMinDeviceRangeBytes = uint64_t{4} << 30;
// 128 sessions of a GPU fit; a session's staging, images and pinned memory lie in it.
inline constexpr uint64_t kMaxHostRangeBytes = uint64_t{64} << 30;
inline constexpr uint64_t kMinHostRangeBytes = uint64_t{1} << 30;

// A session's device range is this many times what its allocations need: in the rest the tenant
// reserves addresses, and PyTorch's expandable segments reserve 9/8 of the whole memory for each
// stream. Less, down to twice, when the window gets narrow.
inline constexpr uint64_t kDeviceRangeFactor = 8;

// The power of two that a session of this quota or limit gets, for its allocations.
uint64_t DeviceRangeBytes(uint64_t memory_quota_bytes);
uint64_t HostRangeBytes(uint64_t pinned_limit_bytes);

class AddressWindow {
 public:
  explicit AddressWindow(channel::Range window) : window_(window) {}

  // A free range of `size_bytes` (a power of two), aligned to its size: the first behind the range
  // taken last, from the window's beginning when there is none. So a range rests as long as
  // possible before it is used again: an executor may keep a dead session's arena mapped until the
  // device is idle. False when no such range is free.
  [[nodiscard]] bool Take(uint64_t size_bytes, channel::Range* range);
  // `range` was taken and is not in use by anybody any more.
  void Free(const channel::Range& range);

  size_t taken_count() const { return taken_.size(); }

 private:
  bool TakeFrom(uint64_t begin, uint64_t size_bytes, channel::Range* range);

  channel::Range window_;
  uint64_t next_ = 0;                   // end of the range taken last
  std::map<uint64_t, uint64_t> taken_;  // begin → size
};

}  // namespace gpuloom::scheduler
