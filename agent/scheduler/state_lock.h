// One scheduler per state folder, and so per GPU. Called from main, once.
#pragma once

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

struct StateLock {
  channel::UniqueFd fd;  // the lock is held as long as this is open; invalid: not held
  bool is_held_by_another = false;
  std::string error;  // why it is not held
};

// Makes the folder unless it is there (0700; its parent must exist), locks its lock file and writes
// this process's id into it.
StateLock LockState(const std::string& state_dir);

}  // namespace gpuloom::scheduler
