// SPDX-License-Identifier: Apache-2.0
// Takes the inventory again from time to time on a node that had no GPU to share: a driver may have been installed
// since, or a GPU may have left MIG mode. Does nothing on a node that had GPUs. Does not own the clock. One thread;
// blocks as long as taking the inventory does.
#pragma once

#include <functional>
#include <utility>

#include "agent/clock.h"
#include "agent/inventory/gpu_list.h"

namespace gpuloom {

class InventoryWatch {
 public:
  // No such change happens within seconds, and each query wakes a broken driver.
  static constexpr std::chrono::seconds kPause{30};

  InventoryWatch(Inventory inventory, std::function<absl::StatusOr<Inventory>()> take, Clock* clock)
      : inventory_(std::move(inventory)),
        take_(std::move(take)),
        clock_(clock),
        next_look_(clock->Now() + kPause) {}

  // Returns true if there is a GPU, or none for another reason than before.
  bool IsOutdated() {
    if (!inventory_.gpus.empty() || clock_->Now() < next_look_) return false;
    next_look_ = clock_->Now() + kPause;
    const absl::StatusOr<Inventory> now = take_();
    return now.ok() && (!now->gpus.empty() || now->none_because != inventory_.none_because);
  }

 private:
  const Inventory inventory_;
  const std::function<absl::StatusOr<Inventory>()> take_;
  Clock* const clock_;
  Clock::Time next_look_;
};

}  // namespace gpuloom
