// SPDX-License-Identifier: Apache-2.0
// Which scheduler a command line means, and how it would be started. Plain value.
#pragma once

#include <chrono>
#include <string>

#include "agent/run/command_line.h"
#include "agent/run/installation.h"

namespace gpuloom::run {

struct SchedulerTarget {
  std::string state_dir;  // not made yet, perhaps relative
  std::string program;    // gpuloom-scheduler
  std::string gpu;        // number or UUID
  std::string cuda_library;
  bool softgpu = false;
  // Loading a driver takes seconds on a machine that has just started.
  std::chrono::seconds patience{60};
};

SchedulerTarget TargetOf(const CommandLine& line, const Installation& installation);

}  // namespace gpuloom::run
