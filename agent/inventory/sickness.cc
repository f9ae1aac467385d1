// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/sickness.h"

#include <algorithm>

namespace gpuloom {
namespace {

constexpr const char* kSourceNames[] = {"probe", "state", "event"};

}  // namespace

const char* Sickness::NameOf(Source source) { return kSourceNames[static_cast<size_t>(source)]; }

Sickness::Source Sickness::SourceOf(std::string_view name) {
  for (const Source source : {Source::kState, Source::kEvent}) {
    if (name == NameOf(source)) return source;
  }
  return Source::kProbe;
}

void Sickness::Fault(Clock::Time now, const std::string& reason, Source source) {
  if (reason_.empty()) {
    // A GPU that fails under load passes a probe each time: doubled pauses keep it from being
    // offered and taken away every few seconds.
    const bool is_relapse = healed_at_.has_value() && now - *healed_at_ < kRelapse;
    pause_ = is_relapse ? std::min(pause_ * 2, kLongestPause) : kFirstPause;
    next_probe_ = now + pause_;
  } else if (source < source_) {
    // The same source may say something newer.
    return;
  }
  source_ = source;
  reason_ = reason;
}

void Sickness::Remember(Clock::Time now, const std::string& reason, Source source) {
  Fault(now, reason, source);
  next_probe_ = now;
}

void Sickness::Suspect(Clock::Time now) {
  if (next_probe_.has_value()) return;
  next_probe_ = last_probe_.has_value() ? std::max(now, *last_probe_ + kCheckPause) : now;
}

void Sickness::Probed(Clock::Time now, const std::string& trouble) {
  last_probe_ = now;
  next_probe_.reset();
  if (trouble.empty()) {
    if (!reason_.empty()) healed_at_ = now;
    reason_.clear();
    return;
  }
  const bool was_sick = !reason_.empty();
  Fault(now, trouble, Source::kProbe);
  // Fault has set the first pause.
  if (!was_sick) return;
  pause_ = std::min(pause_ * 2, kLongestPause);
  next_probe_ = now + pause_;
}

void Sickness::Undecided(Clock::Time now) {
  last_probe_ = now;
  next_probe_.reset();
  // The same pause again: nothing was learned.
  if (!reason_.empty()) next_probe_ = now + pause_;
}

}  // namespace gpuloom
