// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/observer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/cat.h"
#include "agent/identity/kept_text.h"
#include "agent/metrics/ledger_file.h"
#include "proto/control/connection.h"

namespace gpuloom {
namespace {

// A scheduler keeps allocations that are not collected yet, and those of init containers as long as the pod. Their
// reports have the slots that were given; this function replaces them by the slots still held, so that a slot is
// charged to one container at a time.
void LeaveWhatIsHeld(const std::map<std::string, uint64_t>& slots_held, GpuReport* report) {
  for (control::AllocationState& state : report->allocations) {
    const auto known = slots_held.find(std::string(state.name, control::TextLength(state.name)));
    // Not recorded here any more: of the moment before it is removed there as well.
    if (known == slots_held.end() || known->second >= state.slots) continue;
    const uint64_t quota_bytes = state.memory_quota_bytes / state.slots * known->second;
    const uint64_t given_back_bytes = state.memory_quota_bytes - quota_bytes;
    report->gpu.memory_promised_bytes -=
        std::min(report->gpu.memory_promised_bytes, given_back_bytes);
    state.memory_quota_bytes = quota_bytes;
    state.slots = static_cast<uint32_t>(known->second);
  }
}

}  // namespace

void Observer::Load(Clock::Time now) {
  std::string complaint;
  std::optional<Ledger> ledger = LoadLedger(LedgerPath(), now, &complaint);
  if (!complaint.empty()) spdlog::error("{}", complaint);
  // New connections, so that the ledger looks whether the schedulers are still the same.
  clients_.clear();
  is_interrupted_ = false;
  next_keep_ = {};
  const MutexLock lock(mutex_);
  unread_ = ledger.has_value() ? "" : complaint;
  first_reports_.clear();
  ledger_ = std::move(ledger).value_or(Ledger());
  shares_ = {};
  metrics_ = state_ = nullptr;
}

// Nothing is written to the file meanwhile: both Keep and Metrics look at unread_.
void Observer::ReadAgain(Clock::Time now) {
  if (Unread().empty()) return;
  std::string complaint;
  std::optional<Ledger> ledger = LoadLedger(LedgerPath(), now, &complaint);
  const MutexLock lock(mutex_);
  const bool is_new = !complaint.empty() && complaint != unread_;
  if (is_new) spdlog::error("{}", complaint);
  if (!ledger.has_value()) {
    unread_ = complaint;
    return;
  }
  ledger->Continue(first_reports_, ledger_);
  ledger_ = *std::move(ledger);
  // It would show what was counted before as used just now.
  shares_ = {};
  first_reports_.clear();
  if (complaint.empty()) spdlog::info("metrics: {} is read, and counting goes on", LedgerPath());
  unread_.clear();
}

void Observer::Look(Clock::Time now, Clock::Duration wall_ahead) {
  ReadAgain(now);
  NodeFigures node = options_.node();
  for (const std::string& uuid : options_.gpu_uuids) {
    // Without a new page: what was asked so far is in the ledger, and Keep follows.
    if (is_interrupted_) return;
    std::shared_ptr<SchedulerClient>& client = clients_[uuid];
    const bool is_new_connection = client == nullptr;
    if (is_new_connection) {
      auto connected = options_.connect(Cat(options_.state_directory, "/gpus/", uuid));
      if (connected.ok()) client = *std::move(connected);
    }
    // Without mutex_, which requests for the figures need: a scheduler that hangs delays this
    // thread for the time limit, and no other.
    absl::StatusOr<GpuReport> report =
        client == nullptr ? absl::UnavailableError("no scheduler") : client->Report();
    // Connected to anew at the next look, whatever it was: this client may be that of a scheduler
    // that has ended.
    if (!report.ok()) client = nullptr;
    if (report.ok()) LeaveWhatIsHeld(node.slots_held, &*report);
    const MutexLock lock(mutex_);
    if (report.ok()) {
      if (!unread_.empty()) first_reports_.try_emplace(uuid, ReportAt{*report, now});
      ledger_.Add(uuid, *report, is_new_connection, now);
    } else {
      ledger_.SetSilent(uuid);
    }
  }
  {
    const MutexLock lock(mutex_);
    ledger_.Forget(now);
    policy_.Follow(node, now);
    shares_.Follow(ledger_, now);
    refusals_.Follow(node, now);
    node_ = std::move(node);
    looked_at_ = now;
    wall_ahead_ = wall_ahead;
    metrics_ = state_ = nullptr;
  }
  // Between two keeps no figure is lost that anybody was shown: Metrics keeps what it shows.
  if (now < next_keep_) return;
  next_keep_ = now + kKeepPause;
  Keep();
}

void Observer::Keep() {
  const MutexLock keeping(keep_mutex_);
  std::string ledger;
  {
    const MutexLock lock(mutex_);
    if (!unread_.empty()) return;
    // The text is made under the lock, the disk is waited for without it.
    ledger = FormatLedger(ledger_);
  }
  Write(ledger);
}

void Observer::Write(const std::string& ledger) {
  const absl::Status status = KeepText(LedgerPath(), ledger);
  const std::string trouble =
      status.ok() ? ""
                  : Cat("metrics: what was counted cannot be kept for the next start: ",
                        std::string(status.message()));
  if (!trouble.empty() && trouble != last_trouble_) spdlog::warn("{}", trouble);
  last_trouble_ = trouble;
}

std::shared_ptr<const std::string> Observer::Metrics() {
  const MutexLock keeping(keep_mutex_);
  std::shared_ptr<const std::string> metrics;
  std::string ledger;
  {
    const MutexLock lock(mutex_);
    if (!unread_.empty()) return nullptr;
    // It is on disk: the thread that made it has held keep_mutex_ until then.
    if (metrics_ != nullptr) return metrics_;
    metrics =
        std::make_shared<const std::string>(FormatMetrics(ledger_, node_, policy_, wall_ahead_));
    metrics_ = metrics;
    ledger = FormatLedger(ledger_);
  }
  Write(ledger);
  const MutexLock lock(mutex_);
  kept_metrics_ = metrics;
  return metrics;
}

std::shared_ptr<const std::string> Observer::KeptMetrics() {
  const MutexLock lock(mutex_);
  return metrics_ == kept_metrics_ ? metrics_ : nullptr;
}

std::string Observer::Unread() {
  const MutexLock lock(mutex_);
  return unread_;
}

// Not written down first: a page is looked at, and nothing is charged by it.
std::shared_ptr<const std::string> Observer::State() {
  const MutexLock lock(mutex_);
  if (state_ == nullptr) {
    state_ = std::make_shared<const std::string>(
        FormatState(ledger_, node_, policy_, shares_, refusals_, looked_at_, wall_ahead_));
  }
  return state_;
}

}  // namespace gpuloom
