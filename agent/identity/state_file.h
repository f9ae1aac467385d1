// SPDX-License-Identifier: Apache-2.0
// Files of the agent's state, written whole or not at all (agent/node/whole_file.h). Safe from any thread. Failures
// name the path and the reason; the old content is then intact.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// `mode` of the new file.
absl::Status WriteStateFile(const std::string& path, const std::string& content,
                            unsigned mode = 0600);
// Files only, of 256 MiB at most: whatever lies at the path, it is answered at once.
absl::StatusOr<std::string> ReadStateFile(const std::string& path);

// Makes the directory unless it is there; sets its mode either way. The parent must exist.
absl::Status MakeStateDirectory(const std::string& path, unsigned mode);

}  // namespace gpuloom
