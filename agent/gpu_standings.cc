// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu_standings.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/size.h"
#include "agent/policy/capacity.h"

namespace gpuloom {
namespace {

// For files, whose readers convert it to wall time (agent/clock.h).
int64_t UnixSeconds(Clock::Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

// One pass over all GPUs. Each source is queried at its own interval; the state is determined anew in every pass, so
// that a drain or a change of the policy shows at once.
void GpuStandings::Look(Clock::Time now) {
  if (!first_look_.has_value()) first_look_ = now;
  const bool looks_at_slots = now >= next_slot_look_;
  const bool looks_at_executors = now >= next_executor_look_;
  if (looks_at_slots) next_slot_look_ = now + kSlotPause;
  if (looks_at_executors) next_executor_look_ = now + kExecutorPause;
  std::map<std::string, SlotUse> uses;
  // For all GPUs at once: it reads the book once, which looks at every record's file.
  if (looks_at_slots) uses = options_.allocator->SlotUses();
  const std::map<std::string, std::vector<ImpossibleRule>> impossible =
      options_.policy->Impossible();
  for (const Gpu& gpu : options_.gpus) {
    const auto [it, is_first] = known_.try_emplace(gpu.uuid);
    Known& known = it->second;
    if (is_first || known.is_unread) ReadKept(gpu, now, &known);
    const auto use = uses.find(gpu.uuid);
    if (use != uses.end()) UpdateSlots(gpu, use->second, &known);
    // A scheduler that is new to this agent is queried at once, before any slot is given out: only what happens after
    // that counts as new.
    if (looks_at_executors || !known.executors_failed.has_value()) {
      CheckExecutors(gpu, now, &known);
    }
    // A copy: the previous state is what Tell compares it with.
    GpuStanding standing = known.standing;
    standing.index = gpu.index;
    standing.name = gpu.name;
    standing.memory_bytes = gpu.total_bytes;
    standing.numa_node = gpu.numa_node;
    const auto broken = impossible.find(gpu.uuid);
    UpdatePolicy(broken == impossible.end() ? std::vector<ImpossibleRule>() : broken->second,
                 &standing);
    Judge(gpu, now, &standing);
    Publish(gpu, standing, now, &known);
  }
}

// Written by an earlier agent: what it has reported is not reported again. A file that cannot be read now may be whole, so it is
// read again before it is written over.
void GpuStandings::ReadKept(const Gpu& gpu, Clock::Time now, Known* known) {
  std::string unread;
  std::optional<GpuStanding> kept =
      ReadStanding(FolderOfGpu(options_.state_directory, gpu.uuid), &unread);
  const bool may_be_read = !unread.empty() && now - *first_look_ < kUnhealthyAfter;
  if (!unread.empty() && may_be_read != known->is_unread) {
    spdlog::warn("standing: {}; {}", unread,
                 may_be_read ? "it is read again" : "how the GPU stood before is lost");
  }
  known->is_unread = may_be_read;
  if (kept.has_value()) known->standing = *std::move(kept);
}

void GpuStandings::UpdateSlots(const Gpu& gpu, const SlotUse& use, Known* known) {
  GpuStanding& standing = known->standing;
  standing.slots = static_cast<uint64_t>(use.slots());
  standing.held = use.held();
  standing.beyond = use.beyond();
  standing.withheld = use.withheld().size();
  standing.promised_bytes = use.promised_bytes();
  standing.available_bytes = use.room_bytes();
  // Shown even if Allocate has changed nothing since: another agent may have given slots, and a sweep or a change of
  // policy may have freed some.
  options_.board->ShowUse(gpu.uuid, use);
  std::string line;
  if (standing.beyond != 0 || standing.withheld != 0) {
    line = Cat(standing.held, " slots are held, ", standing.beyond,
               " of them beyond the present number of ", standing.slots, ", and keep ",
               FormatSize(standing.promised_bytes), " of ", FormatSize(standing.available_bytes),
               " that the GPU has for slots; ", standing.withheld,
               " free slots are withheld until more memory is free");
  }
  if (line == known->slot_line) return;
  spdlog::info("slots: GPU {}: {}", gpu.uuid,
               line.empty() ? "all that are free can be given again" : line);
  known->slot_line = line;
}

void GpuStandings::UpdatePolicy(const std::vector<ImpossibleRule>& impossible,
                                GpuStanding* standing) {
  standing->impossible_rules = impossible.size();
  standing->impossible.clear();
  for (const ImpossibleRule& one : impossible) {
    // The number above counts all of them.
    if (standing->impossible.size() == kMaxImpossibleRules) return;
    standing->impossible.push_back(one.message);
  }
}

void GpuStandings::CheckExecutors(const Gpu& gpu, Clock::Time now, Known* known) {
  const auto scheduler = options_.supervisor->Client(gpu.uuid);
  // The next scheduler that serves is new to this agent.
  if (!scheduler.ok()) return known->executors_failed.reset();
  const absl::StatusOr<GpuReport> report = (*scheduler)->Report();
  // It may have hung: its counters stay as they were known, and the supervisor looks after it.
  if (!report.ok()) return;
  // A scheduler before control 3.3 counts no executors. 0, so that it is not asked at every look.
  if (!report->tells_gpu) {
    known->executors_failed = 0;
    return;
  }
  if (options_.on_report) options_.on_report(gpu, *report);
  const uint64_t failed = report->gpu.executors_failed;
  // For a scheduler that is new to this agent, all failures count.
  const bool do_not_start = failed > known->executors_failed.value_or(0);
  known->executors_failed = failed;
  if (known->losses.PointToGpu(*report, now) || do_not_start) options_.health->Suspect(gpu.uuid);
}

// The first state that holds: the order of the branches is the one in gpu_standings.h.
void GpuStandings::Judge(const Gpu& gpu, Clock::Time now, GpuStanding* standing) {
  const auto scheduler = options_.supervisor->Client(gpu.uuid);
  // Never removed: once a GPU has been served, its scheduler's absence is reported at once (Tell).
  if (scheduler.ok()) last_served_[gpu.uuid] = now;
  const auto served = last_served_.find(gpu.uuid);
  const bool is_served = served != last_served_.end() && now - served->second < kUnhealthyAfter;
  const std::string drained = DrainReason(FolderOfGpu(options_.state_directory, gpu.uuid));
  const Sickness its = options_.health->Of(gpu.uuid);
  const std::string& sickness = its.reason();
  const std::string too_small = TooSmall(gpu);
  GpuState state = GpuState::kHealthy;
  std::string reason;
  if (!drained.empty()) {
    state = GpuState::kDrained;
    reason = drained;
  } else if (!sickness.empty()) {
    state = GpuState::kSick;
    reason = sickness;
  } else if (!too_small.empty()) {
    state = GpuState::kUnavailable;
    reason = too_small;
  } else if (options_.policy->Current() == nullptr) {
    state = GpuState::kUnavailable;
    reason = "no policy is in force";
  } else if (!is_served) {
    state = GpuState::kUnavailable;
    reason = scheduler.ok() ? "" : std::string(scheduler.status().message());
  }
  // Another reason for the same state does not change since when it has been in it.
  if (state != standing->state || standing->since_unix_s == 0) {
    standing->since_unix_s = UnixSeconds(now);
  }
  standing->state = state;
  standing->reason = std::move(reason);
  standing->sickness = sickness;
  standing->sickness_source = sickness.empty() ? "" : Sickness::NameOf(its.source());
}

// The board first: the kubelet must not give out a GPU while its file is written.
void GpuStandings::Publish(const Gpu& gpu, const GpuStanding& standing, Clock::Time now,
                           Known* known) {
  options_.board->Show(gpu.uuid, standing);
  if (known->is_unread) return;
  // An agent starts before its schedulers, so that a GPU without one is not reported for the first kUnhealthyAfter.
  if (standing.state == GpuState::kUnavailable && !last_served_.contains(gpu.uuid) &&
      now - *first_look_ < kUnhealthyAfter) {
    return;
  }
  const GpuStanding before = std::exchange(known->standing, standing);
  std::string file = FormatStanding(standing);
  if (file != known->file) {
    const absl::Status written =
        WriteStateFile(StandingPath(FolderOfGpu(options_.state_directory, gpu.uuid)), file, 0644);
    // People's commands read it, and the next agent, for which a sick GPU must stay so: tried again at every look.
    if (written.ok()) {
      known->file = std::move(file);
    } else {
      spdlog::debug("standing: {}", std::string(written.message()));
    }
  }
  if (standing.state == before.state && standing.reason == before.reason) return;
  if (options_.on_change) options_.on_change(gpu, before, standing);
}

bool GpuStandings::HaveAllServed() const {
  return std::all_of(options_.gpus.begin(), options_.gpus.end(), [this](const Gpu& gpu) {
    return last_served_.contains(gpu.uuid) || !options_.health->Trouble(gpu.uuid).empty();
  });
}

std::string GpuStandings::TooSmall(const Gpu& gpu) const {
  const auto capacity = options_.capacities.find(gpu.uuid);
  const std::string nothing =
      capacity == options_.capacities.end() ? "" : NothingLeft(capacity->second);
  return nothing.empty() ? "" : Cat(nothing, "; lower --reserve, the chart's value reserve");
}

std::string GpuStandings::Trouble() const {
  std::string trouble;
  for (const Gpu& gpu : options_.gpus) {
    const std::string too_small = TooSmall(gpu);
    if (!too_small.empty()) trouble += Cat(trouble.empty() ? "" : "; ", "gpu: ", too_small);
  }
  for (const auto& [uuid, known] : known_) {
    if (known.standing.state != GpuState::kSick) continue;
    trouble += Cat(trouble.empty() ? "" : "; ", "gpu: ", uuid, " is sick: ", known.standing.reason,
                   "; it is probed, and offered again when that succeeds");
  }
  return trouble;
}

}  // namespace gpuloom
