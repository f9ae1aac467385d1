// SPDX-License-Identifier: Apache-2.0
// One scheduler per state folder, and so per GPU. Called from main, once.
#pragma once

#include <string>

#include "agent/node/lock_file.h"

namespace gpuloom::scheduler {

// Creates the folder if it does not exist (0700; its parent must exist) and takes the lock file in
// it. The lock holds while the returned object lives.
LockFile LockState(const std::string& state_dir);

}  // namespace gpuloom::scheduler
