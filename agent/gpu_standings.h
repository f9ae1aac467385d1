// SPDX-License-Identifier: Apache-2.0
// Determines the state of each GPU and reports it: to the kubelet through the board, to people through a file in the
// GPU's folder (agent/node/gpu_standing.h), and to on_change, once for each change. The state is the first that
// applies:
//
//   drained      an operator ordered it; what runs goes on
//   sick         the driver reports a fault, or a probe has failed
//   unavailable  too small for the reserve, no policy, or no scheduler for kUnhealthyAfter
//   healthy
//
// Owned by NodeAgent, as is all that Options points to; that outlives this object. Used from one thread; time is an
// argument. Each Look may wait for the answers of schedulers. Nothing fails: a file that cannot be written is logged
// and written again at the next change; one that cannot be read is read again, for as long as a GPU without a scheduler still counts
// as healthy.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/executor_losses.h"
#include "agent/inventory/gpu.h"
#include "agent/inventory/gpu_health.h"
#include "agent/node/gpu_standing.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/supervisor/supervisor.h"

namespace gpuloom {

class GpuStandings {
 public:
  // How often the slots in use are counted, and how often schedulers are asked about their executors.
  static constexpr Clock::Duration kSlotPause = std::chrono::seconds(1);
  static constexpr Clock::Duration kExecutorPause = std::chrono::seconds(2);
  // How long a GPU without a scheduler still counts as healthy: restarting one takes less.
  static constexpr Clock::Duration kUnhealthyAfter = std::chrono::seconds(10);

  struct Options {
    std::vector<Gpu> gpus;
    std::string state_directory;
    Supervisor* supervisor = nullptr;
    DeviceBoard* board = nullptr;
    const PolicyWatcher* policy = nullptr;
    Allocator* allocator = nullptr;
    GpuHealth* health = nullptr;
    // Called when the state or its reason has changed.
    std::function<void(const Gpu& gpu, const GpuStanding& before, const GpuStanding& now)>
        on_change;
    // Called with what the GPU's scheduler reports, every kExecutorPause.
    std::function<void(const Gpu& gpu, const GpuReport& report)> on_report;
    std::map<std::string, Capacity> capacities = {};  // by GPU
  };

  explicit GpuStandings(Options options) : options_(std::move(options)) {}

  // Call it a few times a second.
  void Look(Clock::Time now);
  // Every GPU's scheduler has served, but of those that are sick: there is nothing to wait for.
  bool HaveAllServed() const;
  // Which GPUs are sick, or too small for the reserve, and why; empty: none. One line.
  std::string Trouble() const;

 private:
  struct Known {
    GpuStanding standing;
    std::string file;                          // as last written
    std::string slot_line;                     // as last logged
    bool is_unread = false;                    // the former agent's file
    std::optional<uint64_t> executors_failed;  // none: its scheduler has not reported yet
    ExecutorLosses losses;
  };

  void ReadKept(const Gpu& gpu, Clock::Time now, Known* known);
  void UpdateSlots(const Gpu& gpu, const SlotUse& use, Known* known);
  static void UpdatePolicy(const std::vector<ImpossibleRule>& impossible, GpuStanding* standing);
  // Executors that do not start, or that end while tenants of two namespaces use them, point to the GPU.
  void CheckExecutors(const Gpu& gpu, Clock::Time now, Known* known);
  void Judge(const Gpu& gpu, Clock::Time now, GpuStanding* standing);
  void Publish(const Gpu& gpu, const GpuStanding& standing, Clock::Time now, Known* known);
  // Why the GPU can have no slots; empty: it can.
  std::string TooSmall(const Gpu& gpu) const;

  const Options options_;
  std::map<std::string, Known> known_;  // by GPU
  std::map<std::string, Clock::Time> last_served_;
  std::optional<Clock::Time> first_look_;
  Clock::Time next_slot_look_;
  Clock::Time next_executor_look_;
};

}  // namespace gpuloom
