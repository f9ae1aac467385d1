// One agent per state directory. Called from main, once.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gpuloom {

// Makes the directory unless it is there and locks <directory>/<name> until the process ends.
// AlreadyExists, naming the process that was first, when another holds it.
absl::Status LockState(const std::string& directory, const std::string& name);

}  // namespace gpuloom
