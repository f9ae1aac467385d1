// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/capacity.h"

#include "agent/node/size.h"

namespace gpuloom {

std::optional<Capacity> MakeCapacity(const std::string& gpu, uint64_t total_bytes, int slots,
                                     const std::string& reserve, std::string* error) {
  Capacity capacity;
  capacity.gpu = gpu;
  capacity.total_bytes = total_bytes;
  capacity.slots = slots;
  capacity.reserve_bytes = AutoReserveBytes(total_bytes, slots);
  if (reserve != "auto") {
    const std::optional<uint64_t> reserve_bytes = ParseSize(reserve, error);
    if (!reserve_bytes) {
      *error = "--reserve: " + *error;
      return std::nullopt;
    }
    capacity.reserve_bytes = *reserve_bytes;
  }
  return capacity;
}

std::string NothingLeft(const Capacity& capacity) {
  // Less than a granule for each slot is nothing, too.
  if (AutoSlotBytes(capacity) != 0) return "";
  return "GPU " + capacity.gpu + " has " + FormatSize(capacity.total_bytes) + ", --reserve keeps " +
         FormatSize(capacity.reserve_bytes) + ": nothing is left for " +
         std::to_string(capacity.slots) + " slots";
}

}  // namespace gpuloom
