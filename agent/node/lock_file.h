// SPDX-License-Identifier: Apache-2.0
// Files that a process holds locked while it lives: one agent is in charge of a node, one scheduler serves a GPU. The
// holder's process id stands in the file. The kernel lets go of the lock when the process ends, however it ends. Safe
// from any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom {

struct LockFile {
  channel::UniqueFd fd;  // the lock is held as long as this is open; invalid: not held
  bool is_held_by_another = false;
  pid_t holder = 0;   // who holds it; 0: unknown
  std::string error;  // why it is not held; with a valid `fd`: why our id could not be written
};

// Makes the file unless it is there (0600; its folder must exist). Never waits.
LockFile TakeLock(const std::string& path);

// Whether anybody holds it. Takes it for an instant: who tries to lock it just then must try again.
bool IsLocked(const std::string& path);

}  // namespace gpuloom
