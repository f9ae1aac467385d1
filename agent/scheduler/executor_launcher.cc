// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_launcher.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "agent/node/gpu_uuid.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/log.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {

// What an executor gets on its command line is all that it may know before it is confined; its
// domain's name only, no tenant's. It inherits its end of the control socket, the lock of its user,
// and a pipe for its log.
bool ExecutorLauncher::Start(Executor* executor, int control, std::string* error) {
  if (!options_.executor_users.Take(&executor->user, error)) return false;
  executor->folder = folders_.NewPath();
  executor->log = std::make_unique<ExecutorLog>(loop_);
  if (!executor->log->valid()) {
    *error = std::string("scheduler: no pipe for an executor's log: ") + strerror(errno);
    return false;
  }
  std::vector<std::string> command = {
      options_.executor_path,
      "--gpu",
      FormatUuid(device_->facts().uuid),
      "--cuda-library",
      options_.cuda_library,
      "--log-level",
      options_.executor_log_level,
      "--folder",
      executor->folder,
      "--control-version",
      control::VersionText(control::kControlMajor, control::kControlMinor),
      "--tell-refused-calls"};
  if (!executor->is_spare()) command.insert(command.end(), {"--domain", executor->domain});
  executor->lenient = leniency_ == Leniency::kOnce || leniency_ == Leniency::kNeeded;
  if (leniency_ == Leniency::kOnce) leniency_ = Leniency::kUntried;
  if (executor->lenient) command.push_back("--lenient");
  if (options_.executor_memory_bytes != 0) {
    command.insert(command.end(),
                   {"--memory-limit", std::to_string(options_.executor_memory_bytes)});
  }
  // The lock is inherited, so the number stays taken while any process of the executor lives, even
  // if this scheduler dies.
  std::vector<int> descriptors = {control};
  if (executor->user.id != 0) {
    command.insert(command.end(), {"--user", std::to_string(executor->user.id)});
    descriptors.push_back(executor->user.lock.get());
  }
  return executor->process.Start(command, executor->log->TakeWriter().get(), descriptors, error);
}

void ExecutorLauncher::NoteReady(const Executor& executor) {
  if (!executor.lenient) {
    leniency_ = Leniency::kNever;
    return;
  }
  // Twice one has failed, and the next, which was lenient, has not.
  if (++lenient_ready_ == 2) leniency_ = Leniency::kNeeded;
  LogWarning(executor.Label() +
             " is not fully confined: it has no list of files and a shorter one of system calls "
             "(docs/design/taken-over-executor.md)");
}

bool ExecutorLauncher::NoteDriverFailed(const Executor& executor,
                                        const std::string& reason_untrusted) {
  if (executor.lenient || leniency_ == Leniency::kNever) return false;
  if (leniency_ == Leniency::kNeeded) return true;
  // The driver starts without it, and does not with it, at the same time.
  const bool lenient_ready =
      std::any_of(registry_.executors.begin(), registry_.executors.end(), [](const auto& entry) {
        return entry.second->lenient && entry.second->state == Executor::State::kReady;
      });
  leniency_ = lenient_ready ? Leniency::kNeeded : Leniency::kOnce;
  LogWarning(executor.Label() + ": the driver does not start in a fully confined executor (" +
             reason_untrusted + "): " +
             (lenient_ready ? "from now on none is fully confined" : "the next one is not"));
  return true;
}

}  // namespace gpuloom::scheduler
