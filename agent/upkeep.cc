// SPDX-License-Identifier: Apache-2.0
#include "agent/upkeep.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace gpuloom {

void Upkeep::Tick(Clock::Time now, bool has_predecessor) {
  options_.supervisor->Tick(now);
  ShowHealth(now);
  ShowTrouble();
  options_.registrar->Tick(MayRegister(now), has_predecessor);
  if (now >= next_policy_look_) {
    next_policy_look_ = now + kPolicyPause;
    FollowPolicy();
  }
  if (now >= next_unsupported_look_) {
    next_unsupported_look_ = now + kUnsupportedPause;
    SayUnsupported();
  }
  if (now >= next_sweep_) {
    next_sweep_ =
        now + std::min<Clock::Duration>(kSweepPause, std::chrono::seconds(1) + options_.missing);
    Sweep(has_predecessor);
  }
}

void Upkeep::ShowHealth(Clock::Time now) {
  for (const Gpu& gpu : options_.gpus) {
    if (options_.supervisor->IsServing(gpu.uuid)) last_served_[gpu.uuid] = now;
    const auto served = last_served_.find(gpu.uuid);
    const bool is_served = served != last_served_.end() && now - served->second < kUnhealthyAfter;
    options_.board->SetHealthy(gpu.uuid, is_served && options_.policy->Current() != nullptr);
  }
}

void Upkeep::ShowTrouble() {
  const std::string of_policy = options_.policy->Trouble();
  const char* between = options_.node_trouble.empty() || of_policy.empty() ? "" : "; ";
  options_.board->SetTrouble(options_.node_trouble + between + of_policy);
}

bool Upkeep::MayRegister(Clock::Time now) {
  if (!first_tick_.has_value()) first_tick_ = now;
  return last_served_.size() == options_.gpus.size() || now - *first_tick_ >= kUnhealthyAfter;
}

void Upkeep::FollowPolicy() {
  const PolicyWatcher::Look look = options_.policy->LookAgain();
  if (!look.not_kept.empty()) spdlog::warn("{}", look.not_kept);
  if (look.outcome == PolicyWatcher::Outcome::kRefused) {
    spdlog::error("{}", look.reason);
  } else if (look.outcome == PolicyWatcher::Outcome::kReloaded) {
    spdlog::info("policy: {} reloaded", options_.policy_file);
    for (const std::string& trouble : options_.allocator->Regrant()) spdlog::error("{}", trouble);
  }
}

void Upkeep::SayUnsupported() {
  for (const Gpu& gpu : options_.gpus) {
    const auto scheduler = options_.supervisor->Client(gpu.uuid);
    if (!scheduler.ok()) continue;
    const auto unsupported = (*scheduler)->ListUnsupported();
    if (unsupported.ok()) unsupported_log_.Look(gpu.uuid, *unsupported);
  }
}

void Upkeep::Sweep(bool has_predecessor) {
  std::vector<std::string> troubles = options_.allocator->Sweep(has_predecessor);
  if (troubles != last_troubles_) {
    for (const std::string& trouble : troubles) spdlog::warn("{}", trouble);
  }
  last_troubles_ = std::move(troubles);
}

}  // namespace gpuloom
