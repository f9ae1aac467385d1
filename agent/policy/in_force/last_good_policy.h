// SPDX-License-Identifier: Apache-2.0
// The text of the last policy that was good, kept in the agent's state: a wrong policy file costs
// nobody anything as long as there is one, over restarts too. Its form: kept_policy.h. Written whole
// or not at all. Pure functions of the file, called from one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// On failure what was kept before still is.
absl::Status KeepPolicy(const std::string& path, const std::string& text);

// NotFound: nothing was ever kept. DataLoss: the file was damaged. FailedPrecondition: a newer agent
// wrote it. Each names the path. Whether this agent takes the text is not judged here.
absl::StatusOr<std::string> KeptPolicy(const std::string& path);

}  // namespace gpuloom
