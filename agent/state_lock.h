// SPDX-License-Identifier: Apache-2.0
// Locks in the agent's state directory: files that a process holds while it lives, and into which it writes its release
// for `gpuloom version`. Safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {

// Makes the directory unless it exists, and locks <directory>/<name> until the descriptor is closed. AlreadyExists,
// naming the holder, when another process holds the lock.
absl::StatusOr<channel::UniqueFd> LockState(const std::string& directory, const std::string& name);

// Whether any process holds the lock. Takes it for an instant: a process that tries to lock it just then must try
// again.
bool IsStateLocked(const std::string& directory, const std::string& name);

}  // namespace gpuloom
