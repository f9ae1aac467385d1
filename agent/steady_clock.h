// SPDX-License-Identifier: Apache-2.0
// The agent's clock: starts at wall time and advances with the time since boot, even if the machine's clock is set or
// agents are replaced: <state>/clock.yaml says at what time this boot began. So a record that was written an hour ago
// is an hour old, never fresh or a year old.
//
// After a reboot it starts anew at wall time, or at the start of the earlier boot if wall time is before that: a
// machine may come up without knowing the date. Either may be far from wall time, as of now or since the machine's clock
// was set: what is shown is converted (Clock::Shown, and agent/run/shown_time.h for commands, which read the file). Open is
// called from one thread; after it all is safe from any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"

namespace gpuloom {

class SteadyClock : public Clock {
 public:
  // What the clock reads from the machine.
  struct Machine {
    std::function<std::string()> boot_id;  // another one after each boot
    std::function<Duration()> since_boot;  // suspended time included
    std::function<Time()> wall;
  };
  static Machine ThisMachine();

  explicit SteadyClock(Machine machine = ThisMachine());

  // Continues the clock that the state directory records, or starts one and records it. Before Open the clock runs from
  // wall time. Fails when the file cannot be written, or cannot be read now; the clock runs all the same.
  absl::Status Open(const std::string& state_directory);

  Time Now() override;
  Time Wall() override { return machine_.wall(); }
  void SleepFor(Duration duration) override;

 private:
  const Machine machine_;
  // At `base_since_boot_` after this boot the time was `base_`.
  Duration base_since_boot_{};
  Time base_;
};

}  // namespace gpuloom
