// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <algorithm>

#include "agent/node/size.h"

namespace gpuloom {

uint64_t AutoReserveBytes(uint64_t total_bytes, int slots) {
  constexpr uint64_t kContextBytes = uint64_t{600} << 20;
  return std::min(total_bytes / 8, static_cast<uint64_t>(slots) * kContextBytes);
}

uint64_t AutoSlotBytes(const Capacity& capacity) {
  if (capacity.reserve_bytes >= capacity.total_bytes || capacity.slots < 1) return 0;
  const uint64_t share_bytes =
      (capacity.total_bytes - capacity.reserve_bytes) / static_cast<uint64_t>(capacity.slots);
  // The memory lost by rounding stays free on the GPU.
  return share_bytes / kQuotaGranuleBytes * kQuotaGranuleBytes;
}

std::string Where(const Policy& policy, const SourcePosition& place, const std::string& key) {
  return policy.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) +
         ": " + key + ": ";
}

}  // namespace gpuloom
