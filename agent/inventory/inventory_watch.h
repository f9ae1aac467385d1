// SPDX-License-Identifier: Apache-2.0
// Looks again, now and then, at a node that has no GPU to share, or one that cannot be used: a driver may have been installed
// since, a GPU have left MIG mode, or one that was lost be back. Where all is well nothing is looked at. One thread.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "agent/clock.h"
#include "agent/inventory/gpu_list.h"

namespace gpuloom {

class InventoryWatch {
 public:
  // Nothing of this comes within seconds, and asking a broken driver wakes it.
  static constexpr std::chrono::seconds kPause{30};

  InventoryWatch(Inventory inventory, std::function<absl::StatusOr<Inventory>()> take, Clock* clock)
      : inventory_(std::move(inventory)),
        take_(std::move(take)),
        clock_(clock),
        next_look_(clock->Now() + kPause) {}

  // The inventory, once, when other GPUs are in it or there is other trouble. A GPU in it that can be used again, or is lost for
  // another reason, is no change: whoever has the inventory probes it (gpu_health.h).
  std::optional<Inventory> Change() {
    const bool is_well =
        !inventory_.gpus.empty() && inventory_.faults.empty() && inventory_.trouble.empty();
    if (is_well || clock_->Now() < next_look_) return std::nullopt;
    next_look_ = clock_->Now() + kPause;
    absl::StatusOr<Inventory> now = take_();
    if (!now.ok()) return std::nullopt;
    const bool is_same = now->gpus == inventory_.gpus && now->trouble == inventory_.trouble;
    inventory_ = *std::move(now);
    if (is_same) return std::nullopt;
    return inventory_;
  }

 private:
  Inventory inventory_;
  const std::function<absl::StatusOr<Inventory>()> take_;
  Clock* const clock_;
  Clock::Time next_look_;
};

}  // namespace gpuloom
