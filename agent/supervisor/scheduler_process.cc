// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/scheduler_process.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/cat.h"
#include "agent/node/lock_file.h"
#include "agent/node/process.h"
#include "proto/control/messages.h"

namespace gpuloom {
namespace {

// Looked at only when a scheduler is started: the log of one that runs is not moved away under it.
constexpr off_t kMaxLogBytes = 16 << 20;

}  // namespace

absl::StatusOr<pid_t> StartScheduler(const std::vector<std::string>& arguments,
                                     const std::string& log_path) {
  struct stat info = {};
  if (stat(log_path.c_str(), &info) == 0 && info.st_size > kMaxLogBytes) {
    // A log that cannot be moved grows: no reason not to start.
    (void)rename(log_path.c_str(), (log_path + ".1").c_str());
  }
  pid_t pid = 0;
  const int error = StartDetached(arguments, environ, log_path, &pid);
  if (error != 0) {
    return absl::UnavailableError(
        Cat("supervisor: cannot start ", arguments[0], ": ", strerror(error)));
  }
  return pid;
}

std::optional<std::string> ReapProcess(pid_t pid) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  // Nobody else may have reaped it: then how it ended is not known, but it has.
  if (ended < 0) return Cat("vanished: ", strerror(errno));
  return ExitText(status);
}

void ReapStrays(const std::set<pid_t>& ours) {
  siginfo_t ended = {};
  // WNOWAIT, so that the status of our own children is still there for ReapProcess. Stops at the
  // first of our own; strays queued after it are reaped once it has been.
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0 &&
         !ours.contains(ended.si_pid)) {
    (void)waitpid(ended.si_pid, nullptr, WNOHANG);
    // waitid need not write it where no child has ended.
    ended.si_pid = 0;
  }
}

bool IsSchedulerLockHeld(const std::string& directory) {
  return IsLocked(directory + "/" + control::kLockName);
}

bool IsSchedulerGone(const std::string& directory) {
  return IsCertainlyUnlocked(directory + "/" + control::kLockName);
}

}  // namespace gpuloom
