// SPDX-License-Identifier: Apache-2.0
// The options with which the agent starts a scheduler. Plain value.
#pragma once

#include <string>
#include <vector>

namespace gpuloom {

struct SchedulerCommand {
  std::string program;          // gpuloom-scheduler
  std::string idle_timeout;     // empty: the scheduler's default
  std::string drain_timeout;    // empty: the scheduler's default
  std::string cuda_library;     // empty: NVIDIA's
  std::string executor_users;   // empty: the scheduler's default
  std::string executor_memory;  // empty: the executor's default
  unsigned spare_executors = 0;
  std::string log_level;   // empty: the scheduler's default
  std::string log_format;  // empty: the scheduler's default

  // The command line for this GPU and its directory. Pure.
  std::vector<std::string> For(const std::string& gpu_uuid, const std::string& directory) const;
};

}  // namespace gpuloom
