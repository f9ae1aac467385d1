// SPDX-License-Identifier: Apache-2.0
// The agent's periodic work: looks after schedulers, determines the GPUs' state, stays registered with the kubelet,
// follows the policy's file, logs which unsupported CUDA calls tenants made, and collects what pods left behind. Owns
// nothing that it is given; all of it outlives this object. Used from one thread; time is an argument. Troubles are
// logged, and the work is done again at a later tick.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/events/event.h"
#include "agent/gpu_standings.h"
#include "agent/inventory/gpu.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/plugins.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/supervisor/supervisor.h"
#include "agent/supervisor/unsupported_log.h"

namespace gpuloom {

// Reports which rules in force are impossible on this node's GPUs: logs each, and sends one event. `tell` may be null.
void ReportImpossibleRules(const PolicyWatcher& policy,
                           const std::function<void(const Event& event)>& report);

class Upkeep {
 public:
  // As often as the agent's loop runs (main.cc): a change applies to all that runs within a second, and a file of a few
  // KiB is read in some microseconds.
  static constexpr Clock::Duration kPolicyPause = std::chrono::milliseconds(200);
  static constexpr Clock::Duration kUnsupportedPause = std::chrono::seconds(2);
  static constexpr Clock::Duration kSweepPause = std::chrono::seconds(5);

  struct Options {
    std::vector<Gpu> gpus;
    std::string policy_file;    // for messages
    std::string node_trouble;   // what the operator must mend besides the policy; empty: nothing
    Clock::Duration missing{};  // how long a pod must be gone before it is collected
    Supervisor* supervisor = nullptr;
    GpuStandings* standings = nullptr;
    DeviceBoard* board = nullptr;
    Plugins* plugins = nullptr;
    PolicyWatcher* policy = nullptr;
    Allocator* allocator = nullptr;
    std::function<void(const Event& event)> report;  // may be null
    const GpuHealth* health = nullptr;
  };

  explicit Upkeep(Options options) : options_(std::move(options)) {}

  // Call it a few times a second. `has_predecessor`: the agent that this one replaces still answers the kubelet.
  void Tick(Clock::Time now, bool has_predecessor = false);
  // Call it after a time in which another agent was in charge.
  void Resume() { options_.plugins->RegisterAgain(); }

 private:
  void ShowTrouble();
  // While this agent does not yet know its devices to be healthy, it does not take them over from an agent that shows
  // them as healthy.
  bool MayRegister(Clock::Time now);
  // Says once that the driver does not answer, and that it does again.
  void FollowDriver();
  void FollowPolicy();
  void Regrant();
  // Regrants until everybody has what the policy grants.
  void RepeatGrants();
  // Whose grants failed, in one line for the operator; empty: nobody's.
  std::string GrantTrouble() const;
  void SayUnsupported();
  void Sweep(bool has_predecessor);

  const Options options_;
  std::optional<Clock::Time> first_tick_;
  Clock::Time next_policy_look_;
  Clock::Time next_unsupported_look_;
  Clock::Time next_sweep_;
  std::string driver_trouble_;    // as last said
  bool had_predecessor_ = false;  // at the last tick
  UnsupportedLog unsupported_log_;
  std::vector<std::string> last_troubles_;  // of the last sweep: each list is logged once
  std::vector<std::string> failed_grants_;  // that were logged
};

}  // namespace gpuloom
