// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/scheduler_command.h"

namespace gpuloom {

std::vector<std::string> SchedulerCommand::For(const std::string& gpu_uuid,
                                               const std::string& directory) const {
  // What the operator has not set is not passed on, so that the scheduler's own default holds, also
  // of another release than the agent's.
  std::vector<std::string> command = {program, "--gpu", gpu_uuid, "--state-dir", directory};
  if (!idle_timeout.empty()) command.insert(command.end(), {"--idle-timeout", idle_timeout});
  if (!drain_timeout.empty()) command.insert(command.end(), {"--drain-timeout", drain_timeout});
  if (!cuda_library.empty()) command.insert(command.end(), {"--cuda-library", cuda_library});
  if (!executor_users.empty()) command.insert(command.end(), {"--executor-users", executor_users});
  if (!executor_memory.empty())
    command.insert(command.end(), {"--executor-memory", executor_memory});
  if (spare_executors != 0) {
    command.insert(command.end(), {"--spare-executors", std::to_string(spare_executors)});
  }
  if (!log_level.empty()) command.insert(command.end(), {"--log-level", log_level});
  if (!log_format.empty()) command.insert(command.end(), {"--log-format", log_format});
  return command;
}

}  // namespace gpuloom
