// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/capacity.h"

#include "agent/cat.h"
#include "agent/node/size.h"

namespace gpuloom {

absl::StatusOr<Capacity> MakeCapacity(const std::string& gpu, uint64_t total_bytes, int slots,
                                      const std::string& reserve) {
  Capacity capacity;
  capacity.gpu = gpu;
  capacity.total_bytes = total_bytes;
  capacity.slots = slots;
  capacity.reserve_bytes = AutoReserveBytes(total_bytes, slots);
  if (reserve != "auto") {
    std::string error;
    const std::optional<uint64_t> reserve_bytes = ParseSize(reserve, &error);
    if (!reserve_bytes) return absl::InvalidArgumentError(Cat("--reserve: ", error));
    capacity.reserve_bytes = *reserve_bytes;
  }
  if (AutoSlotBytes(capacity) == 0) {
    return absl::InvalidArgumentError(Cat("GPU ", gpu, " has ", FormatSize(total_bytes),
                                          ", --reserve keeps ", FormatSize(capacity.reserve_bytes),
                                          ": nothing is left for ", slots, " slots"));
  }
  return capacity;
}

}  // namespace gpuloom
