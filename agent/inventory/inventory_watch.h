// SPDX-License-Identifier: Apache-2.0
// Takes the inventory again every kPause while the node has no GPU to share, or one that cannot be used: a driver may
// have been installed, a GPU may have left MIG mode, or a lost one may be back. Does nothing while all GPUs can be
// used.
//
// Owned by the caller of Change; one thread. The inventory is taken on a detached thread, because a broken driver may
// hang it, and the other GPUs must be served meanwhile.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/clock.h"
#include "agent/inventory/gpu_list.h"

namespace gpuloom {

class InventoryWatch {
 public:
  // No such change happens within seconds, and each query wakes a broken driver.
  static constexpr std::chrono::seconds kPause{30};

  using Take = std::function<absl::StatusOr<Inventory>()>;

  // `take` may outlive this object, and all that its caller has. `run` is for tests, which do without threads.
  InventoryWatch(
      Inventory inventory, Take take, Clock* clock,
      std::function<void(std::function<void()>)> run =
          [](const std::function<void()>& look) { std::thread(look).detach(); })
      : inventory_(std::move(inventory)),
        take_(std::move(take)),
        clock_(clock),
        run_(std::move(run)),
        next_look_(clock->Now() + kPause) {}

  // Returns the inventory, once, when it has other GPUs, or when trouble has begun or ended. A change interrupts the
  // plugin for a moment, so where GPUs are served, another wording of the driver's trouble is no change. Nor is a GPU
  // that can be used again, or is lost for another reason: GpuHealth probes it.
  std::optional<Inventory> Change() {
    const bool is_well =
        !inventory_.gpus.empty() && inventory_.faults.empty() && inventory_.trouble.empty();
    if (look_ == nullptr) {
      if (is_well || clock_->Now() < next_look_) return std::nullopt;
      look_ = std::make_shared<Look>();
      try {
        run_([look = look_, take = take_] {
          look->found = take();
          look->is_over = true;
        });
      } catch (const std::system_error&) {  // no more threads at the moment
        look_.reset();
        next_look_ = clock_->Now() + kPause;
        return std::nullopt;
      }
    }
    if (!look_->is_over) return std::nullopt;
    absl::StatusOr<Inventory> now = std::move(look_->found);
    look_.reset();
    next_look_ = clock_->Now() + kPause;
    if (!now.ok()) return std::nullopt;
    const bool is_same =
        HaveSameGpus(*now, inventory_) && now->is_unusable == inventory_.is_unusable &&
        (inventory_.gpus.empty() ? now->trouble == inventory_.trouble
                                 : now->trouble.empty() == inventory_.trouble.empty());
    inventory_ = *std::move(now);
    if (is_same) return std::nullopt;
    return inventory_;
  }

 private:
  // By what slots are made of: a GPU's number may change with others' state.
  static bool HaveSameGpus(const Inventory& a, const Inventory& b) {
    const auto key = [](const Gpu& gpu) { return std::pair(gpu.uuid, gpu.total_bytes); };
    std::set<std::pair<std::string, uint64_t>> in_a, in_b;
    for (const Gpu& gpu : a.gpus) in_a.insert(key(gpu));
    for (const Gpu& gpu : b.gpus) in_b.insert(key(gpu));
    return in_a == in_b;
  }

  struct Look {
    absl::StatusOr<Inventory> found = Inventory();
    std::atomic<bool> is_over = false;
  };

  Inventory inventory_;
  const Take take_;
  Clock* const clock_;
  const std::function<void(std::function<void()>)> run_;
  std::shared_ptr<Look> look_;  // that is going on; null: none is
  Clock::Time next_look_;
};

}  // namespace gpuloom
