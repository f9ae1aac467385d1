// SPDX-License-Identifier: Apache-2.0
// Locks in the agent's state directory: files that a process holds while it lives, and in which it says of which release it
// is, for `gpuloom version`. Safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {

// Makes the directory unless it is there and locks <directory>/<name> until the descriptor is
// closed. AlreadyExists, naming the process that was first, when another holds it.
absl::StatusOr<channel::UniqueFd> LockState(const std::string& directory, const std::string& name);

// Whether any process holds it. Takes it for an instant: one that tries to lock it just then must
// try again.
bool IsStateLocked(const std::string& directory, const std::string& name);

}  // namespace gpuloom
