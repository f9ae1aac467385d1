// SPDX-License-Identifier: Apache-2.0
// The address ranges that one allocation's sessions hold in a window, and how much the next session gets. Pure
// bookkeeping, owned by Allocation; the scheduler's thread only. The windows belong to the caller. Sizes are in bytes.
// Why these sizes: docs/design/addresses.md.
//
// The first session gets as much as programs are known to reserve, whatever its quota; later ones get less and less,
// and the total is bounded. Part of the window is kept for the first few sessions of each allocation, so that no
// tenant, nor all of them together, can take what every allocation is guaranteed. A range counts until it is free
// again, not until its session ends. But a session counts as the first if no other is being served: a program that
// restarts while its predecessor drains gets as much as that one had.
#pragma once

#include <cstdint>
#include <string>

#include "agent/scheduler/address_window.h"

namespace gpuloom::scheduler {

// A window whose last two parts are set aside: for the minimum that first sessions need, and for small ranges. They
// are separate so that large quotas, which may be overcommitted, leave the small ones theirs.
struct DividedWindow {
  DividedWindow(const channel::Range& window, uint64_t needed_bytes, uint64_t assured_bytes)
      : open(channel::Range{window.begin, window.size_bytes - needed_bytes - assured_bytes}),
        needed(channel::Range{open.end(), needed_bytes}),
        assured(channel::Range{needed.end(), assured_bytes}) {}

  AddressWindow open;
  AddressWindow needed;
  AddressWindow assured;
};

struct AddressLimits {
  const char* kind;       // "device" or "host", for messages
  uint64_t first_bytes;   // the first session's range; a multiple of least_bytes, like all sizes
  uint64_t needed_bytes;  // with less, the first session could not use its quota
  uint64_t least_bytes;   // a session's smallest range
  uint32_t assured;       // this many sessions get a range even if others have taken all the rest
  uint64_t most_bytes;    // all ranges of the allocation together
};

class AddressShare {
 public:
  // Takes a range for one more session: as large as the limits and the free space allow. Returns false if they allow
  // none; Refusal says why.
  [[nodiscard]] bool Take(const AddressLimits& limits, DividedWindow* window,
                          channel::Range* range);
  // The session of a range taken here is no longer served; its range may still be in use. Once per range.
  void EndServing() { serving_ -= serving_ == 0 ? 0 : 1; }
  // `range` was taken here, and its session is no longer served.
  void Free(const channel::Range& range, DividedWindow* window);

  uint64_t held_bytes() const { return held_bytes_; }
  // The message is to follow the name of who holds the ranges.
  std::string Refusal(const AddressLimits& limits) const;

 private:
  uint64_t Wanted(const AddressLimits& limits) const;
  bool TakeOpen(const AddressLimits& limits, AddressWindow* window, uint64_t size_bytes,
                channel::Range* range) const;

  uint64_t held_bytes_ = 0;
  uint32_t ranges_ = 0;
  uint32_t serving_ = 0;        // those of ranges_ whose sessions have not ended
  uint32_t needed_ranges_ = 0;  // those of ranges_ that lie in DividedWindow::needed
};

// Enough for a program that reserves nothing and has a small quota.
inline constexpr uint64_t kLeastDeviceRangeBytes = uint64_t{4} << 30;
inline constexpr uint32_t kAssuredDeviceRanges = 4;
// For 1,024 allocations.
inline constexpr uint64_t kAssuredDeviceBytes =
    1024 * kAssuredDeviceRanges * kLeastDeviceRangeBytes;
// Enough where the quotas add up to the memory of the GPU: a first session needs at most four times its quota.
inline constexpr uint64_t kNeededDeviceBytes = uint64_t{2} << 40;
// What the first session of an allocation can reserve, whatever its quota.
inline constexpr uint64_t kFirstReservableBytes = uint64_t{256} << 30;

// Half of the host window's 8 TiB is for small ranges. In the rest, 96 sessions get the range that goes with the
// default pinned memory limit, and 64 more get half of it.
inline constexpr uint64_t kMinHostRangeBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMaxHostRangeBytes = uint64_t{64} << 30;
inline constexpr uint32_t kAssuredHostRanges = 4;
inline constexpr uint64_t kAssuredHostBytes = 1024 * kAssuredHostRanges * kMinHostRangeBytes;
inline constexpr uint64_t kNeededHostBytes = uint64_t{1} << 40;

// The host range holds a session's pinned and managed memory, staging and images. Pure, as the functions below.
AddressLimits HostAddressLimits(uint64_t pinned_limit_bytes);
// How much a session with a range of `range_bytes` may pin, leaving room for what else is in the range.
uint64_t PinnedLimitBytes(uint64_t pinned_limit_bytes, uint64_t range_bytes);

AddressLimits DeviceAddressLimits(uint64_t memory_quota_bytes);
// The first part of a range of `range_bytes` is the executor's, for cuMemAlloc. The tenant reserves addresses in the
// rest.
uint64_t DeviceOwnBytes(uint64_t memory_quota_bytes, uint64_t range_bytes);

}  // namespace gpuloom::scheduler
