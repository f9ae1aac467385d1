// A window of addresses, cut into disjoint ranges: device addresses and host addresses that tenants
// of one GPU see as they are. Pure bookkeeping, one thread. A range comes back only after the
// executor that could have it mapped is done with it.
#pragma once

#include <cstdint>
#include <map>

#include "proto/channel/region.h"

namespace gpuloom::scheduler {

// Measured on the real driver: device memory can be mapped at a wanted address here, and neither
// the kernel's mmap nor a position-independent executable (0x55…, 0x56…) comes near.
inline constexpr channel::Range kDeviceWindow{0x5000'0000'0000, 0x0500'0000'0000};
inline constexpr channel::Range kHostWindow{0x6000'0000'0000, 0x1000'0000'0000};

// Twice the quota leaves room for fragmentation; 4 GiB keeps small quotas usable when raised.
inline constexpr uint64_t kMinDeviceRangeBytes = uint64_t{4} << 30;
// 256 sessions of a GPU fit; a session's staging, images and pinned memory lie in it.
inline constexpr uint64_t kMaxHostRangeBytes = uint64_t{64} << 30;
inline constexpr uint64_t kMinHostRangeBytes = uint64_t{1} << 30;

// The power of two that a session of this quota or limit gets.
uint64_t DeviceRangeBytes(uint64_t memory_quota_bytes);
uint64_t HostRangeBytes(uint64_t pinned_limit_bytes);

class AddressWindow {
 public:
  explicit AddressWindow(channel::Range window) : window_(window) {}

  // The lowest free range of `size_bytes` (a power of two), aligned to its size. False when no such
  // range is free.
  [[nodiscard]] bool Take(uint64_t size_bytes, channel::Range* range);
  // `range` was taken and is not in use by anybody any more.
  void Free(const channel::Range& range);

  size_t taken_count() const { return taken_.size(); }

 private:
  channel::Range window_;
  std::map<uint64_t, uint64_t> taken_;  // begin → size
};

}  // namespace gpuloom::scheduler
