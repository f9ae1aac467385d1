// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/state_lock.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/scheduler/log.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

LockFile LockState(const std::string& state_dir) {
  // Not with its parents: a mistyped path must not make folders.
  if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    LockFile none;
    none.error = "cannot make the state folder " + state_dir + ": " + strerror(errno);
    return none;
  }
  const std::string path = state_dir + "/" + control::kLockName;
  LockFile lock = TakeLock(path);
  if (lock.is_held_by_another) {
    lock.error = "another scheduler holds " + path + ": one runs per GPU; it is reached through " +
                 state_dir + "/" + control::kControlSocketName;
  }
  // The lock is held nevertheless.
  if (lock.fd.valid() && !lock.error.empty()) LogWarning(lock.error);
  return lock;
}

}  // namespace gpuloom::scheduler
