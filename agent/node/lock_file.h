// SPDX-License-Identifier: Apache-2.0
// Files that a process keeps locked while it lives: one agent is in charge of a node, one scheduler serves a GPU. The
// file contains the holder's process id and, optionally, a line of the holder's own. The kernel releases the lock when
// the process ends, however it ends. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom {

struct LockFile {
  channel::UniqueFd fd;  // the lock is held as long as this is open; invalid: not held
  bool is_held_by_another = false;
  pid_t holder = 0;   // the holder's process id; 0: unknown
  std::string error;  // why it is not held; with a valid `fd`: why our id could not be written
};

// Creates the file if it does not exist (0600; its folder must exist). Waits for 0.1 s at most, because IsLocked holds
// the lock for an instant. `line`: written to the file after the process id.
LockFile TakeLock(const std::string& path, const std::string& line = {});

// Returns whether any process holds it; needs only permission to read the file. Takes the lock for an instant.
bool IsLocked(const std::string& path);

// Returns whether certainly no process holds it: false, too, where that cannot be found out.
bool IsCertainlyUnlocked(const std::string& path);

// The line of the latest holder, unescaped and cut to what the first 256 bytes of the file hold; empty: there is
// none, or it cannot be read.
std::string LineOfHolder(const std::string& path);

}  // namespace gpuloom
