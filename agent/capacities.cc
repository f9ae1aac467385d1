// SPDX-License-Identifier: Apache-2.0
#include "agent/capacities.h"

#include <spdlog/spdlog.h>

#include "agent/node/size.h"
#include "agent/policy/capacity.h"

namespace gpuloom {

absl::StatusOr<std::map<std::string, Capacity>> CapacitiesOf(const std::vector<Gpu>& gpus,
                                                             int slots,
                                                             const std::string& reserve) {
  std::map<std::string, Capacity> capacities;
  for (const Gpu& gpu : gpus) {
    std::string error;
    std::optional<Capacity> capacity =
        MakeCapacity(gpu.uuid, gpu.total_bytes, slots, reserve, &error);
    // Wrong for all GPUs alike: the reserve is the operator's text. What one GPU is too small for
    // costs no other (NothingLeft).
    if (!capacity) return absl::InvalidArgumentError(error);
    // For the policy's `gpus`, which name GPUs by number or product.
    capacity->index = gpu.index;
    capacity->product = gpu.name;
    capacities[gpu.uuid] = *capacity;
    if (const std::string nothing = NothingLeft(*capacity); !nothing.empty()) {
      spdlog::error("inventory: {}; it is offered to nobody", nothing);
      continue;
    }
    spdlog::info("inventory: {} {}: {}, {} slots of {} each unless the policy says otherwise",
                 gpu.uuid, gpu.name, FormatSize(gpu.total_bytes), slots,
                 FormatSize(AutoSlotBytes(*capacity)));
  }
  return capacities;
}

}  // namespace gpuloom
