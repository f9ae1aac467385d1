// SPDX-License-Identifier: Apache-2.0
// The command line of `gpuloom`. Plain values, which main owns and passes to the command; at most one of the optional
// commands is set, and without any the words are those of `gpuloom run`. Called once, from main, before there is another
// thread. Prints help, shell completions and errors itself; the exit status is then 0, or 2 for a mistake (docs/cli.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/policy_command/policy_command.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/drain.h"
#include "agent/run/status.h"
#include "agent/run/suspend.h"
#include "agent/run/top.h"
#include "agent/run/trace.h"

namespace gpuloom::run {

inline constexpr int kSlotsPerGpu = 10;  // as the node agent's default

struct CommandLine {
  std::string gpu = "0";  // number or "GPU-…"
  bool softgpu = false;
  int slots = 1;
  std::optional<uint64_t> memory_bytes;  // instead of slots × memory per slot
  std::string domain = "local";
  // Weight in sharing the GPU's time with the other commands; 0: the default.
  uint32_t weight = 0;
  uint32_t priority = 0;      // as ShareTerms
  uint32_t time_percent = 0;  // the same; the most of the GPU's time
  // The most of the GPU's multiprocessors, and those reserved for the command within its domain. 0: not set.
  uint32_t sm_percent = 0;
  uint32_t sm_reserved = 0;
  std::chrono::milliseconds memory_wait{0};
  bool traces = false;    // the command may trace itself
  std::string state_dir;  // empty: the default
  std::vector<std::string> command;
  std::optional<PolicyCommand> policy;    // instead of all that
  std::optional<SuspendCommand> suspend;  // the same
  std::optional<StatusCommand> status;    // the same
  std::optional<TopCommand> top;          // the same
  std::optional<DoctorCommand> doctor;    // the same
  std::optional<TraceCommand> trace;      // the same
  std::optional<DrainCommand> drain;      // the same
};

// nullopt: there is nothing to run; the caller exits with *exit_status.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status);

}  // namespace gpuloom::run
