// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_time.h"

#include <algorithm>

namespace gpuloom::scheduler {

// As in BusyMeter, the sums are what an executor would have had that had always been there, so a
// moment costs the same however many executors there are. What is rounded away belongs to nobody.
void DeviceTime::Advance(uint64_t now_ns) {
  const uint64_t passed_ns = now_ns - std::min(now_ns, now_ns_);
  now_ns_ = std::max(now_ns, now_ns_);
  if (!executors_.empty()) sum_.of_copies_ns += passed_ns / executors_.size();
  if (turns_ != 0) {
    sum_.of_turns_ns += passed_ns / turns_;
  } else if (!executors_.empty()) {
    sum_.of_pauses_ns += passed_ns / executors_.size();
  }
}

// The executor's own part grows by the sums' growth since it was last looked at: by turns only
// while it has one, by pauses and of copy engines always.
void DeviceTime::Settle(Executor* executor) {
  if (executor->has_turn) executor->part_ns += sum_.of_turns_ns - executor->since.of_turns_ns;
  executor->part_ns += sum_.of_pauses_ns - executor->since.of_pauses_ns;
  for (size_t i = 0; i < executor->kept_ns.size(); ++i) {
    uint64_t& kept_ns = executor->kept_ns[i];
    kept_ns += sum_.of_copies_ns - executor->since.of_copies_ns;
    left_ns_[i] += kept_ns - std::min(kept_ns, kKeptNs);
    kept_ns = std::min(kept_ns, kKeptNs);
  }
  executor->since = sum_;
}

void DeviceTime::Add(uint64_t executor, uint64_t now_ns) {
  Advance(now_ns);
  const auto [it, is_new] = executors_.try_emplace(executor);
  if (!is_new) return;
  it->second.since = sum_;
  it->second.added_ns = now_ns_;
}

void DeviceTime::Remove(uint64_t executor, uint64_t now_ns) {
  // Also takes it out of the turns' count, if it is in it.
  SetTurn(executor, false, now_ns);
  const auto it = executors_.find(executor);
  if (it == executors_.end()) return;
  Settle(&it->second);
  for (size_t i = 0; i < left_ns_.size(); ++i) left_ns_[i] += it->second.kept_ns[i];
  executors_.erase(it);
}

void DeviceTime::SetTurn(uint64_t executor, bool has_turn, uint64_t now_ns) {
  Advance(now_ns);
  const auto it = executors_.find(executor);
  if (it == executors_.end() || it->second.has_turn == has_turn) return;
  Settle(&it->second);
  it->second.has_turn = has_turn;
  has_turn ? ++turns_ : --turns_;
}

uint64_t DeviceTime::PartNs(uint64_t executor, uint64_t now_ns) {
  Advance(now_ns);
  const auto it = executors_.find(executor);
  if (it == executors_.end()) return 0;
  Settle(&it->second);
  return it->second.part_ns;
}

uint64_t DeviceTime::Charge(uint64_t executor, size_t engine, uint64_t wanted_ns, uint64_t now_ns) {
  Advance(now_ns);
  const auto it = executors_.find(executor);
  if (it == executors_.end()) return 0;
  Settle(&it->second);
  if (engine != 0) return ChargeCopies(&it->second, engine - 1, wanted_ns);
  const uint64_t granted_ns = std::min(wanted_ns, it->second.part_ns - it->second.charged_ns);
  it->second.charged_ns += granted_ns;
  return granted_ns;
}

// Whoever copies alone is charged for all of it, half of that two seconds later beside one other executor.
uint64_t DeviceTime::ChargeCopies(Executor* executor, size_t copy_engine, uint64_t wanted_ns) {
  uint64_t& kept_ns = executor->kept_ns[copy_engine];
  uint64_t& left_ns = left_ns_[copy_engine];
  uint64_t& copied_ns = executor->copied_ns[copy_engine];
  wanted_ns = std::min(wanted_ns, now_ns_ - executor->added_ns - copied_ns);
  if (wanted_ns > kept_ns) {
    // What others have kept for too long is there only when it is looked at.
    for (auto& [id, other] : executors_) Settle(&other);
  }
  const uint64_t own_ns = std::min(wanted_ns, kept_ns);
  const uint64_t others_ns = std::min(wanted_ns - own_ns, left_ns);
  kept_ns -= own_ns;
  left_ns -= others_ns;
  copied_ns += own_ns + others_ns;
  return own_ns + others_ns;
}

}  // namespace gpuloom::scheduler
