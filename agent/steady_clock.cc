// SPDX-License-Identifier: Apache-2.0
#include "agent/steady_clock.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <thread>

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/boot.h"

namespace gpuloom {
namespace {

// The clock's own unit: what is read back is the time that was written.
int64_t ToMillis(Clock::Time time) {
  return std::chrono::duration_cast<Clock::Duration>(time.time_since_epoch()).count();
}

// The stored start of a boot.
struct Base {
  std::string boot_id;
  Clock::Duration since_boot{};
  Clock::Time time;
};

// False when it is not one: then time begins anew.
bool Parse(const std::string& text, Base* base) {
  try {
    const YAML::Node root = YAML::Load(text);
    base->boot_id = root["boot"].as<std::string>();
    base->since_boot = Clock::Duration(root["sinceBootMs"].as<int64_t>());
    base->time = Clock::Time(Clock::Duration(root["timeMs"].as<int64_t>()));
    return true;
  } catch (const YAML::Exception&) {
    return false;
  }
}

}  // namespace

SteadyClock::Machine SteadyClock::ThisMachine() {
  Machine machine;
  machine.boot_id = BootId;
  machine.since_boot = SinceBoot;
  machine.wall = [] { return std::chrono::system_clock::now(); };
  return machine;
}

SteadyClock::SteadyClock(Machine machine)
    : machine_(std::move(machine)),
      base_since_boot_(machine_.since_boot()),
      base_(std::chrono::time_point_cast<Duration>(machine_.wall())) {}

absl::Status SteadyClock::Open(const std::string& state_directory) {
  const std::string path = state_directory + "/clock.yaml";
  const std::string boot_id = machine_.boot_id();
  Base stored;
  const absl::StatusOr<std::string> text = ReadStateFile(path);
  // Not overwritten: the next agent continues from it, so that records keep their true age.
  if (!text.ok() && !absl::IsNotFound(text.status()) && !absl::IsDataLoss(text.status())) {
    return text.status();
  }
  if (text.ok() && Parse(*text, &stored)) {
    // The same boot: time continues from the base that all its agents have used. A base in the
    // future cannot be of this boot.
    if (stored.boot_id == boot_id && stored.since_boot <= base_since_boot_) {
      base_since_boot_ = stored.since_boot;
      base_ = stored.time;
      return absl::OkStatus();
    }
    // A new boot, or no usable record of this one: wall time, unless it is earlier than when the
    // one before began, which is a machine that has lost the date.
    base_ = std::max(base_, stored.time);
  }
  return WriteStateFile(path, Cat("boot: \"", boot_id, "\"\nsinceBootMs: ",
                                  base_since_boot_.count(), "\ntimeMs: ", ToMillis(base_), "\n"));
}

Clock::Time SteadyClock::Now() { return base_ + (machine_.since_boot() - base_since_boot_); }

void SteadyClock::SleepFor(Duration duration) { std::this_thread::sleep_for(duration); }

}  // namespace gpuloom
