// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/refusal.h"

#include "agent/executor/process/log.h"

namespace gpuloom::executor {

void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed) {
  Log(LogLevel::kError, "%s", error.c_str());
  control::Connection connection(std::move(control));
  control::ExecutorReady ready = {};
  ready.driver_failed = driver_failed;
  control::SetText(ready.message, error.c_str());
  // A scheduler that is gone needs no refusal.
  (void)connection.Send(0, ready);
}

bool CanServeScheduler(const std::string& control_version, std::string* error) {
  const std::string major = std::to_string(control::kControlMajor) + ".";
  if (control_version.starts_with(major)) return true;
  *error = "control: the scheduler that started this executor speaks control version " +
           control_version + ", the executor " +
           control::VersionText(control::kControlMajor, control::kControlMinor) +
           ": its program was replaced meanwhile; restart the scheduler";
  return false;
}

}  // namespace gpuloom::executor
