// SPDX-License-Identifier: Apache-2.0
// What the agent does again and again: looks after schedulers, shows the kubelet which GPUs are
// healthy, stays registered, follows the policy's file, says what tenants lacked, collects what pods
// left behind. Owns nothing it is given. One thread; time comes with Tick.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/inventory/gpu.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/registrar.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/supervisor/supervisor.h"
#include "agent/supervisor/unsupported_log.h"

namespace gpuloom {

class Upkeep {
 public:
  static constexpr Clock::Duration kPolicyPause = std::chrono::seconds(1);
  static constexpr Clock::Duration kUnsupportedPause = std::chrono::seconds(2);
  static constexpr Clock::Duration kSweepPause = std::chrono::seconds(15);
  // How long a GPU without scheduler still counts as healthy: restarting one takes less.
  static constexpr Clock::Duration kUnhealthyAfter = std::chrono::seconds(10);

  struct Options {
    std::vector<Gpu> gpus;
    std::string policy_file;    // for messages
    std::string node_trouble;   // what the operator must mend, beside the policy; empty: nothing
    Clock::Duration missing{};  // how long a pod is gone before it is collected
    Supervisor* supervisor = nullptr;
    DeviceBoard* board = nullptr;
    Registrar* registrar = nullptr;
    PolicyWatcher* policy = nullptr;
    Allocator* allocator = nullptr;
  };

  explicit Upkeep(Options options) : options_(std::move(options)) {}

  // A few times a second. `has_predecessor`: the agent that this one replaces still answers the
  // kubelet.
  void Tick(Clock::Time now, bool has_predecessor = false);
  // After a time in which another agent was in charge.
  void Resume() { options_.registrar->RegisterAgain(); }

 private:
  void ShowHealth(Clock::Time now);
  void ShowTrouble();
  // Before its devices are known to be healthy an agent takes none over from one that shows them so.
  bool MayRegister(Clock::Time now);
  void FollowPolicy();
  void SayUnsupported();
  void Sweep(bool has_predecessor);

  const Options options_;
  std::map<std::string, Clock::Time> last_served_;
  std::optional<Clock::Time> first_tick_;
  Clock::Time next_policy_look_;
  Clock::Time next_unsupported_look_;
  Clock::Time next_sweep_;
  UnsupportedLog unsupported_log_;
  std::vector<std::string> last_troubles_;  // of a sweep: each list is said once
};

}  // namespace gpuloom
