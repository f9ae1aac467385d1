// SPDX-License-Identifier: Apache-2.0
// The agent's clock: begins with wall time and runs on with the time since boot, whoever sets the
// machine's clock, and however often agents are replaced: <state>/clock.yaml says where this boot began. So
// what was stored an hour ago is an hour old, neither fresh nor a year old.
//
// After a reboot it begins anew, with wall time, or with where it began before if wall time is
// earlier: a machine may come up without knowing the date. Safe from any thread after Open.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"

namespace gpuloom {

class SteadyClock : public Clock {
 public:
  // What it asks the machine.
  struct Machine {
    std::function<std::string()> boot_id;  // another one after each boot
    std::function<Duration()> since_boot;  // suspended time included
    std::function<Time()> wall;
  };
  static Machine ThisMachine();

  explicit SteadyClock(Machine machine = ThisMachine());

  // Goes on from what the state directory says, or begins there. Before that it runs on from
  // wall time. Fails, and runs all the same, when the file cannot be written.
  absl::Status Open(const std::string& state_directory);

  Time Now() override;
  void SleepFor(Duration duration) override;

 private:
  const Machine machine_;
  // At `base_since_boot_` of this boot it was `base_`.
  Duration base_since_boot_{};
  Time base_;
};

}  // namespace gpuloom
