// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <algorithm>

#include "agent/node/size.h"

namespace gpuloom {
namespace {

std::string BrokenPromiseOf(const Policy& policy, const PolicyRule& rule,
                            const Capacity& capacity) {
  if (!rule.memory.has_value() || rule.memory->value.is_auto) return "";
  const uint64_t slots = static_cast<uint64_t>(capacity.slots);
  const uint64_t slot_bytes = rule.memory->value.slot_bytes;
  const uint64_t room_bytes =
      capacity.total_bytes - std::min(capacity.total_bytes, capacity.reserve_bytes);
  if (slot_bytes <= room_bytes / slots) return "";
  return Where(policy, rule.memory->place, rule.path + ".memory") + std::to_string(slots) +
         " slots x " + FormatSize(slot_bytes) + " is more than GPU " + capacity.gpu + " has (" +
         FormatSize(capacity.total_bytes) + ", of which " + FormatSize(capacity.reserve_bytes) +
         " are kept for the executors): write at most " + FormatSize(AutoSlotBytes(capacity)) +
         ", lower the number of slots, or set overcommit: true";
}

}  // namespace

uint64_t AutoReserveBytes(uint64_t total_bytes, int slots) {
  constexpr uint64_t kContextBytes = uint64_t{600} << 20;
  return std::min(total_bytes / 8, static_cast<uint64_t>(slots) * kContextBytes);
}

uint64_t AutoSlotBytes(const Capacity& capacity) {
  if (capacity.reserve_bytes >= capacity.total_bytes || capacity.slots < 1) return 0;
  const uint64_t share_bytes =
      (capacity.total_bytes - capacity.reserve_bytes) / static_cast<uint64_t>(capacity.slots);
  return share_bytes / kQuotaGranuleBytes * kQuotaGranuleBytes;
}

std::string Where(const Policy& policy, const Place& place, const std::string& key) {
  return policy.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) +
         ": " + key + ": ";
}

std::string BrokenPromise(const Policy& policy, const Capacity& capacity) {
  if (policy.overcommit) return "";
  std::string broken = BrokenPromiseOf(policy, policy.defaults, capacity);
  for (const PolicyRule& rule : policy.namespaces) {
    if (broken.empty()) broken = BrokenPromiseOf(policy, rule, capacity);
  }
  return broken;
}

}  // namespace gpuloom
