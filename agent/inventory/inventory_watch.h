// SPDX-License-Identifier: Apache-2.0
// Looks again, now and then, at a node on which there was no GPU to share: a driver may have been
// installed since, or a GPU have left MIG mode. Where there were GPUs nothing is looked at. One
// thread.
#pragma once

#include <functional>
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

  // There is a GPU now, or none for another reason.
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
