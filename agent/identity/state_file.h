// SPDX-License-Identifier: Apache-2.0
// Files of the agent's state, written whole or not at all: temporary file, fsync, rename, fsync of
// the directory. Safe from any thread for different paths. Failures name the path and the reason;
// the old content is then intact.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// `mode` of the new file.
absl::Status WriteStateFile(const std::string& path, const std::string& content,
                            unsigned mode = 0600);
// Removes from the directory what writers have left there that were ended in the middle, and nothing of those that still
// write, in whatever process.
void RemoveUnfinishedFiles(const std::string& directory);
// Files only, of 256 MiB at most: whatever lies at the path, it is answered at once.
absl::StatusOr<std::string> ReadStateFile(const std::string& path);

// Makes the directory unless it is there; sets its mode either way. The parent must exist.
absl::Status MakeStateDirectory(const std::string& path, unsigned mode);

}  // namespace gpuloom
