// SPDX-License-Identifier: Apache-2.0
// Files of the agent's state, written whole or not at all (agent/node/whole_file.h). Safe from any thread. Failures
// name the path and the reason; the old content is then intact.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// `mode`: the new file's permissions.
absl::Status WriteStateFile(const std::string& path, const std::string& content,
                            unsigned mode = 0600);
// Reads regular files only, of at most 256 MiB, so that it returns soon, whatever lies at the path. NotFound: there is none. DataLoss:
// what lies there is no such file. Whatever else went wrong says nothing about the file, which may be whole: the
// disk, or the process's limits, for a moment.
absl::StatusOr<std::string> ReadStateFile(const std::string& path);

// Makes the directory unless it exists; sets its mode in either case. The parent must exist.
absl::Status MakeStateDirectory(const std::string& path, unsigned mode);

}  // namespace gpuloom
