#include "agent/scheduler/address_window.h"

#include <algorithm>
#include <bit>

namespace gpuloom::scheduler {
namespace {

// std::bit_ceil without its undefined result for values above 2^63.
uint64_t PowerOfTwoAtLeast(uint64_t bytes, uint64_t largest) {
  return bytes >= largest ? largest : std::bit_ceil(bytes);
}

}  // namespace

uint64_t DeviceRangeBytes(uint64_t memory_quota_bytes) {
  constexpr uint64_t kLargest = uint64_t{1} << 41;  // eight of which the window can hold
  if (memory_quota_bytes >= kLargest / 2) return kLargest;
  return std::max(kMinDeviceRangeBytes, PowerOfTwoAtLeast(memory_quota_bytes * 2, kLargest));
}

uint64_t HostRangeBytes(uint64_t pinned_limit_bytes) {
  if (pinned_limit_bytes >= kMaxHostRangeBytes / 4) return kMaxHostRangeBytes;
  return std::max(kMinHostRangeBytes,
                  PowerOfTwoAtLeast(pinned_limit_bytes * 4, kMaxHostRangeBytes));
}

bool AddressWindow::Take(uint64_t size_bytes, channel::Range* range) {
  if (size_bytes == 0 || !std::has_single_bit(size_bytes)) return false;
  return TakeFrom(std::max(next_, window_.begin), size_bytes, range) ||
         TakeFrom(window_.begin, size_bytes, range);
}

bool AddressWindow::TakeFrom(uint64_t begin, uint64_t size_bytes, channel::Range* range) {
  const auto align = [&](uint64_t address) {
    return (address + size_bytes - 1) & ~(size_bytes - 1);
  };
  uint64_t candidate = align(begin);
  for (const auto& [taken, bytes] : taken_) {
    if (candidate + size_bytes <= taken) break;
    if (taken + bytes > candidate) candidate = align(taken + bytes);
  }
  if (!window_.Contains(candidate, size_bytes)) return false;
  taken_.emplace(candidate, size_bytes);
  next_ = candidate + size_bytes;
  *range = channel::Range{candidate, size_bytes};
  return true;
}

void AddressWindow::Free(const channel::Range& range) {
  const auto it = taken_.find(range.begin);
  if (it != taken_.end() && it->second == range.size_bytes) taken_.erase(it);
}

}  // namespace gpuloom::scheduler
