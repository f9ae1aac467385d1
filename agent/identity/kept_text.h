// SPDX-License-Identifier: Apache-2.0
// A text that is kept in the agent's state over restarts and must come back to the byte or not at all: the last good
// policy, what metrics have counted. The file has a last line more, which says how long the text is and its sum: half
// a policy is another policy. A comment of YAML, so that what was YAML still is. Written whole or not at all. Safe
// from any thread for different paths.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// On failure what was kept before still is.
absl::Status KeepText(const std::string& path, const std::string& text);

// NotFound: nothing was ever kept. DataLoss: the file was damaged. FailedPrecondition: a newer agent
// wrote it. Each names the path. Whether this agent takes the text is not judged here.
absl::StatusOr<std::string> KeptText(const std::string& path);

}  // namespace gpuloom
