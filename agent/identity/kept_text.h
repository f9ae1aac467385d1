// SPDX-License-Identifier: Apache-2.0
// Keeps a text in the agent's state across restarts that must come back byte for byte or not at all: the last good
// policy, or what the metrics have counted. The file ends with a seal (agent/node/sealed_text.h), and is written
// whole or not at all. Safe from any thread for different paths.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

// On failure the text that was kept before stays.
absl::Status KeepText(const std::string& path, const std::string& text);

// NotFound: no text was ever kept. DataLoss: the file is damaged. FailedPrecondition: a newer agent wrote it. Any other:
// it cannot be read now, and may be whole (MayBeWhole). Each names the path. Does not check whether this agent understands the text.
absl::StatusOr<std::string> KeptText(const std::string& path);
// Of what KeptText returned: whether to read it again later, and not to write over it until then.
bool MayBeWhole(const absl::Status& failure);

}  // namespace gpuloom
