// SPDX-License-Identifier: Apache-2.0
// Whether one GPU is sick, and when it is to be probed. A fault that the driver reports makes it sick at once; mere
// evidence, such as executors that do not start, has it probed first. A sick GPU is probed again and again, with
// growing pauses, and is healthy when a probe succeeds. If it falls sick again soon, the next probes come later. A
// GPU that has no room for a probe keeps its state.
//
// A value; used from one thread. Time is an argument.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/clock.h"

namespace gpuloom {

class Sickness {
 public:
  // The pause between probes of a GPU that is not known to be sick: a probe makes a context.
  static constexpr Clock::Duration kCheckPause = std::chrono::seconds(10);
  static constexpr Clock::Duration kFirstPause = std::chrono::seconds(10);
  // A repaired GPU is offered again within minutes.
  static constexpr Clock::Duration kLongestPause = std::chrono::minutes(5);
  // A GPU that is sick again within this time still has the same sickness.
  static constexpr Clock::Duration kRelapse = std::chrono::minutes(10);

  // Who reports the sickness. Later entries know more, so a reason replaces those of the same and of earlier entries.
  enum class Source {
    kProbe,
    kState,  // the driver, about the GPU's present state
    kEvent,  // the driver, about something that has happened to it
  };

  // As files say it: "probe", "state", "event". Anything else is taken for a probe's, which any newer reason replaces.
  static const char* NameOf(Source source);
  static Source SourceOf(std::string_view name);

  void Fault(Clock::Time now, const std::string& reason, Source source);
  // It was sick before this object was made: it is so until a probe, which is due at once, says otherwise.
  void Remember(Clock::Time now, const std::string& reason, Source source);
  void Suspect(Clock::Time now);

  bool WantsProbe(Clock::Time now) const { return next_probe_.has_value() && now >= *next_probe_; }
  // `trouble` is empty if the probe succeeded.
  void Probed(Clock::Time now, const std::string& trouble);
  // The GPU had no room for the probe: its state stays, and a suspicion is dropped.
  void Undecided(Clock::Time now);

  // Why it is sick, in one line; empty: it is not.
  const std::string& reason() const { return reason_; }
  Source source() const { return source_; }

 private:
  std::string reason_;
  Source source_ = Source::kProbe;  // of reason_
  std::optional<Clock::Time> next_probe_;
  std::optional<Clock::Time> last_probe_;
  std::optional<Clock::Time> healed_at_;
  Clock::Duration pause_ = kFirstPause;
};

}  // namespace gpuloom
