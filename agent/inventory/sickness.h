// SPDX-License-Identifier: Apache-2.0
// Whether one GPU is sick, and when it is to be probed. A fault that the driver reports makes it sick at once; what
// only points to the GPU, such as executors that do not start, has it probed first. A sick GPU is probed again and
// again, with growing pauses, and is well when a probe succeeds. One that falls sick again soon is left alone for
// longer. A GPU that has no room for a probe stays what it was.
//
// A value; used from one thread. Time is an argument.
#pragma once

#include <optional>
#include <string>

#include "agent/clock.h"

namespace gpuloom {

class Sickness {
 public:
  // Between two probes of a GPU of which nothing is known to be wrong: a probe makes a context.
  static constexpr Clock::Duration kCheckPause = std::chrono::seconds(10);
  static constexpr Clock::Duration kFirstPause = std::chrono::seconds(10);
  // A repaired GPU is offered again within minutes.
  static constexpr Clock::Duration kLongestPause = std::chrono::minutes(5);
  // Sick again within that time, it is the same sickness.
  static constexpr Clock::Duration kRelapse = std::chrono::minutes(10);

  // Who says that it is sick. Each says more than those before it, so its reason replaces theirs and no later one's.
  enum class Source {
    kProbe,
    kState,  // the driver, of how the GPU is now
    kEvent,  // the driver, of what has happened to it
  };

  void Fault(Clock::Time now, const std::string& reason, Source source);
  void Suspect(Clock::Time now);

  bool WantsProbe(Clock::Time now) const { return next_probe_.has_value() && now >= *next_probe_; }
  // `trouble` is empty if the GPU did what it was asked for.
  void Probed(Clock::Time now, const std::string& trouble);
  // The GPU had no room for the probe: it is as sick as it was, and a suspicion is none.
  void Undecided(Clock::Time now);

  // One line; empty: it is not sick.
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
  Source source_ = Source::kProbe;  // of the reason
  std::optional<Clock::Time> next_probe_;
  std::optional<Clock::Time> last_probe_;
  std::optional<Clock::Time> healed_at_;
  Clock::Duration pause_ = kFirstPause;
};

}  // namespace gpuloom
