// SPDX-License-Identifier: Apache-2.0
#include "agent/refusal_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/identity/state_file.h"
#include "agent/node/fair_cut.h"

namespace gpuloom {
namespace {

// Two refusals are the same if the call and the whole reason, which names the pod, are.
template <typename Refusals, typename Refusal>
auto Find(Refusals& refusals, const Refusal& like) {
  return std::ranges::find_if(refusals, [&](const auto& one) {
    return one.call == like.call && one.reason == like.reason;
  });
}

}  // namespace

void RefusalLog::Look(const std::vector<RefusedRequest>& latest, Clock::Time now) {
  // So it is at nearly every tick: then neither the file nor the table is touched.
  if (latest != seen_) Take(latest, now);
  if (now < next_write_) return;
  if (!is_written_) next_write_ = now + kPause;
  Flush();
}

void RefusalLog::Flush() {
  if (is_written_ || !AddEarlier()) return;
  const absl::Status written =
      WriteStateFile(RefusalPath(state_directory_), FormatRefusals(known_));
  is_written_ = written.ok();
  if (!written.ok()) spdlog::debug("refusals: {}", std::string(written.message()));
}

bool RefusalLog::AddEarlier() {
  if (has_earlier_) return true;
  std::string trouble;
  const std::optional<std::vector<KnownRefusal>> earlier = ReadRefusals(state_directory_, &trouble);
  if (!earlier.has_value()) {
    if (trouble != last_trouble_) {
      spdlog::warn("refusals: {}; what is refused now is kept once that can be read", trouble);
    }
    last_trouble_ = trouble;
    return false;
  }
  for (const KnownRefusal& refusal : *earlier) {
    const auto known = Find(known_, refusal);
    if (known == known_.end()) {
      known_.push_back(refusal);
    } else {
      known->times += refusal.times;
    }
  }
  has_earlier_ = true;
  Cut();
  return true;
}

void RefusalLog::Take(const std::vector<RefusedRequest>& latest, Clock::Time now) {
  for (const RefusedRequest& refusal : latest) {
    const auto seen = Find(seen_, refusal);
    // A reason that fell out of the latest ones and came back counts from 1 again.
    const uint64_t before = seen == seen_.end() ? 0 : std::min(seen->times, refusal.times);
    if (refusal.times == before) continue;
    auto known = Find(known_, refusal);
    if (known == known_.end()) {
      // known_ may be longer than kMostKept for a moment; Cut below.
      known = known_.insert(
          known_.end(), KnownRefusal{refusal.call, refusal.reason, 0, 0, refusal.pod_namespace});
    }
    known->pod_namespace = refusal.pod_namespace;  // an older agent's file has none
    known->times += refusal.times - before;
    known->last_unix_s =
        std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  }
  seen_ = latest;
  Cut();
  is_written_ = false;
}

void RefusalLog::Cut() {
  std::ranges::stable_sort(known_, std::greater(), &KnownRefusal::last_unix_s);
  CutFairly(&known_, kMostKept);
}

}  // namespace gpuloom
