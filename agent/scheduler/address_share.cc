// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/address_share.h"

#include <algorithm>
#include <bit>

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kLargestOwnBytes = uint64_t{1} << 40;  // of a quota of 512 GiB and more
// The ranges above the least size hold together at most as much as this many first ranges.
constexpr uint64_t kFirstRanges = 3;

// Twice the quota leaves room for fragmentation, and for a quota that is raised.
uint64_t LargestOwnBytes(uint64_t memory_quota_bytes) {
  if (memory_quota_bytes >= kLargestOwnBytes / 2) return kLargestOwnBytes;
  return std::max(kLeastDeviceRangeBytes, std::bit_ceil(memory_quota_bytes * 2));
}

constexpr uint64_t kSessions = 64;  // kMaxSessionsPerAllocation

}  // namespace

AddressLimits HostAddressLimits(uint64_t pinned_limit_bytes) {
  const uint64_t first_bytes =
      pinned_limit_bytes >= kMaxHostRangeBytes / 4
          ? kMaxHostRangeBytes
          : std::max(kMinHostRangeBytes, std::bit_ceil(pinned_limit_bytes * 4));
  return {.kind = "host",
          .first_bytes = first_bytes,
          .needed_bytes = std::max(kMinHostRangeBytes, first_bytes / 2),
          .least_bytes = kMinHostRangeBytes,
          .assured = kAssuredHostRanges,
          .most_bytes = first_bytes * kFirstRanges + kSessions * kMinHostRangeBytes};
}

uint64_t PinnedLimitBytes(uint64_t pinned_limit_bytes, uint64_t range_bytes) {
  constexpr uint64_t kRestBytes = uint64_t{8} << 30;  // eight images of the largest size
  return std::min(pinned_limit_bytes, range_bytes - std::min(range_bytes / 2, kRestBytes));
}

AddressLimits DeviceAddressLimits(uint64_t memory_quota_bytes) {
  const uint64_t own_bytes = LargestOwnBytes(memory_quota_bytes);
  // PyTorch's expandable segments reserve 9/8 of the quota for each stream and kind of block.
  const uint64_t first_bytes = std::max(own_bytes * 8, own_bytes + kFirstReservableBytes);
  return {.kind = "device",
          .first_bytes = first_bytes,
          .needed_bytes = own_bytes,  // half of it holds the quota
          .least_bytes = kLeastDeviceRangeBytes,
          .assured = kAssuredDeviceRanges,
          .most_bytes = first_bytes * kFirstRanges + kSessions * kLeastDeviceRangeBytes};
}

uint64_t DeviceOwnBytes(uint64_t memory_quota_bytes, uint64_t range_bytes) {
  return std::min(LargestOwnBytes(memory_quota_bytes), range_bytes / 2);
}

uint64_t AddressShare::Wanted(const AddressLimits& limits) const {
  if (serving_ == 0) return limits.first_bytes;
  // Half of what the first session gets, then three quarters of the previous one each time.
  const uint64_t together_bytes = limits.first_bytes * kFirstRanges;
  return (together_bytes - std::min(together_bytes, held_bytes_)) / 4;
}

bool AddressShare::TakeOpen(const AddressLimits& limits, AddressWindow* window, uint64_t size_bytes,
                            channel::Range* range) const {
  // The second half of the window is for other allocations' first sessions, and for small ranges.
  const bool may_be_last = serving_ == 0 || size_bytes == limits.least_bytes;
  const uint64_t left_bytes = may_be_last ? 0 : window->size_bytes() / 2;
  return size_bytes + left_bytes <= window->free_bytes() && window->Take(size_bytes, range);
}

bool AddressShare::Take(const AddressLimits& limits, DividedWindow* window, channel::Range* range) {
  for (uint64_t wanted = Wanted(limits);; wanted /= 2) {
    const uint64_t size_bytes =
        std::max(limits.least_bytes, wanted / limits.least_bytes * limits.least_bytes);
    const bool is_least = size_bytes == limits.least_bytes;
    // Beyond what large ranges may take together, there is room only for small ones.
    const uint64_t together_bytes =
        is_least ? limits.most_bytes : limits.first_bytes * kFirstRanges;
    const bool fits = held_bytes_ + size_bytes <= together_bytes;
    // Only one at a time, because other allocations need theirs, too.
    const bool may_need = serving_ == 0 && needed_ranges_ == 0 && !is_least;
    const bool is_needed = may_need && size_bytes <= limits.needed_bytes;
    // Only allocations with fewer ranges than are assured may use the part that is kept for this.
    const bool is_assured = ranges_ < limits.assured && is_least;
    if (fits && (TakeOpen(limits, &window->open, size_bytes, range) ||
                 (is_needed && window->needed.Take(size_bytes, range)) ||
                 (is_assured && window->assured.Take(size_bytes, range)))) {
      held_bytes_ += size_bytes;
      ++ranges_;
      ++serving_;
      needed_ranges_ += window->needed.Contains(*range) ? 1 : 0;
      return true;
    }
    if (is_least) return false;
  }
}

void AddressShare::Free(const channel::Range& range, DividedWindow* window) {
  needed_ranges_ -= std::min(needed_ranges_, window->needed.Contains(range) ? 1u : 0u);
  // It belongs to one of these; the others ignore it.
  for (AddressWindow* part : {&window->open, &window->needed, &window->assured}) part->Free(range);
  held_bytes_ -= std::min(held_bytes_, range.size_bytes);
  ranges_ -= std::min(ranges_, 1u);
}

std::string AddressShare::Refusal(const AddressLimits& limits) const {
  const uint32_t ended = ranges_ - std::min(ranges_, serving_);
  std::string held = std::to_string(held_bytes_ >> 30) + " GiB of this GPU's " + limits.kind +
                     " addresses in " + std::to_string(ranges_) + " processes";
  if (ended != 0) {
    held += ", " + std::to_string(ended) +
            " of them ended, whose addresses come back when the kernels that run now have ended";
  }
  if (held_bytes_ + limits.least_bytes > limits.most_bytes) {
    return held + "; the limit is " + std::to_string(limits.most_bytes >> 30) +
           " GiB: end some of them";
  }
  return held + "; the limit is " + std::to_string(limits.assured) +
         " while others hold nearly all addresses: end some of them";
}

}  // namespace gpuloom::scheduler
