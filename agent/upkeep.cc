// SPDX-License-Identifier: Apache-2.0
#include "agent/upkeep.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/cat.h"

namespace gpuloom {

void ReportImpossibleRules(const PolicyWatcher& policy,
                           const std::function<void(const Event&)>& report) {
  for (const auto& [gpu, broken] : policy.Impossible()) {
    for (const ImpossibleRule& one : broken) {
      spdlog::warn("policy: pods of {} are refused on GPU {}: {}", one.key, gpu, one.message);
    }
  }
  const std::string partly = policy.ImpossibleText();
  if (!partly.empty() && report) {
    report({true, "", "", "", "GpuPolicyPartly", partly, /*is_said=*/true});
  }
}

// The order matters: a scheduler that was just connected is judged before its devices are shown to the kubelet, and
// they are shown before this agent registers.
void Upkeep::Tick(Clock::Time now, bool has_predecessor) {
  options_.supervisor->Tick(now);
  options_.standings->Look(now);
  FollowDriver();
  ShowTrouble();
  options_.plugins->Tick(MayRegister(now), has_predecessor);
  if (now >= next_policy_look_) {
    next_policy_look_ = now + kPolicyPause;
    FollowPolicy();
  }
  // While it left, the other agent answered the kubelet and followed the policy no longer: it may have granted by an
  // older one.
  if (had_predecessor_ && !has_predecessor) Regrant();
  had_predecessor_ = has_predecessor;
  if (now >= next_unsupported_look_) {
    next_unsupported_look_ = now + kUnsupportedPause;
    SayUnsupported();
  }
  if (now >= next_sweep_) {
    // Sooner with a short --missing-seconds, as tests set it.
    next_sweep_ =
        now + std::min<Clock::Duration>(kSweepPause, std::chrono::seconds(1) + options_.missing);
    Sweep(has_predecessor);
    // What the sweep has freed may be what somebody lacks.
    RepeatGrants();
  }
}

// At every tick, because each part of it may heal by itself. The board's word is the readiness
// probe's.
void Upkeep::ShowTrouble() {
  std::string troubles;
  for (const std::string& trouble :
       {options_.node_trouble, driver_trouble_, options_.policy->Trouble(),
        options_.policy->ImpossibleText(), GrantTrouble(), options_.standings->Trouble()}) {
    if (!trouble.empty()) troubles += (troubles.empty() ? "" : "; ") + trouble;
  }
  options_.board->SetTrouble(troubles);
}

bool Upkeep::MayRegister(Clock::Time now) {
  if (!first_tick_.has_value()) first_tick_ = now;
  // Not for ever: schedulers that cannot be started must not keep the others' GPUs from pods.
  return options_.standings->HaveAllServed() || now - *first_tick_ >= GpuStandings::kUnhealthyAfter;
}

void Upkeep::FollowDriver() {
  std::string trouble = options_.health->DriverTrouble();
  if (trouble == driver_trouble_) return;
  driver_trouble_ = std::move(trouble);
  if (driver_trouble_.empty()) return spdlog::info("nvml: the driver answers again");
  spdlog::error("{}", driver_trouble_);
  if (options_.report) {
    options_.report({true, "", "", "", "GpuUnusable", driver_trouble_, /*is_said=*/true});
  }
}

void Upkeep::FollowPolicy() {
  const PolicyWatcher::LoadResult result = options_.policy->Reload();
  if (!result.not_kept.empty()) spdlog::warn("{}", result.not_kept);
  if (result.outcome == PolicyWatcher::Outcome::kRefused) {
    spdlog::error("{}", result.reason);
    if (options_.report)
      options_.report({true, "", "", "", "GpuPolicyRefused", result.reason, /*is_said=*/true});
  } else if (result.outcome == PolicyWatcher::Outcome::kReloaded) {
    spdlog::info("policy: {} reloaded", options_.policy_file);
    if (options_.report) {
      options_.report({false, "", "", "", "GpuPolicyReloaded", "the policy file is in force",
                       /*is_said=*/true});
    }
    ReportImpossibleRules(*options_.policy, options_.report);
    // After the event: a scheduler may be slow to take its grants.
    Regrant();
  }
}

void Upkeep::Regrant() {
  for (const std::string& trouble : options_.allocator->Regrant()) spdlog::error("{}", trouble);
  failed_grants_ = options_.allocator->FailedGrants();
}

// That somebody lacks memory was said when the policy changed, and changes with each pod that comes or ends. What fails
// is said once.
void Upkeep::RepeatGrants() {
  if (options_.allocator->OwesGrants()) (void)options_.allocator->Regrant();
  std::vector<std::string> failed = options_.allocator->FailedGrants();
  for (const std::string& line : failed) {
    if (std::ranges::find(failed_grants_, line) == failed_grants_.end()) spdlog::error("{}", line);
  }
  if (failed.empty() && !failed_grants_.empty()) {
    spdlog::info("policy: no pod keeps an old grant any more");
  }
  failed_grants_ = std::move(failed);
}

std::string Upkeep::GrantTrouble() const {
  const std::vector<std::string> failed = options_.allocator->FailedGrants();
  if (failed.empty()) return "";
  return Cat(failed.front(), failed.size() == 1 ? "" : Cat(" (and ", failed.size() - 1, " more)"),
             "; it is tried again");
}

void Upkeep::SayUnsupported() {
  for (const Gpu& gpu : options_.gpus) {
    const auto scheduler = options_.supervisor->Client(gpu.uuid);
    // Its tenants' calls are kept by the scheduler, not by the connection: the next one is asked
    // later.
    if (!scheduler.ok()) continue;
    const auto unsupported = (*scheduler)->ListUnsupported();
    if (unsupported.ok()) unsupported_log_.Look(gpu.uuid, *unsupported);
  }
}

// The same troubles are logged once, not every quarter of a minute.
void Upkeep::Sweep(bool has_predecessor) {
  std::vector<std::string> troubles = options_.allocator->Sweep(has_predecessor);
  if (troubles != last_troubles_) {
    for (const std::string& trouble : troubles) spdlog::warn("{}", trouble);
  }
  last_troubles_ = std::move(troubles);
}

}  // namespace gpuloom
