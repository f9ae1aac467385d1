// SPDX-License-Identifier: Apache-2.0
// Reads a policy from YAML text. Pure, safe from any thread. Every message starts with file:line
// and names the key; an unknown key, a repeated key and a repeated namespace are errors, the first
// with the nearest known key.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// `file` is used in messages only. Empty text is the empty policy: the built-in defaults.
absl::StatusOr<Policy> ParsePolicy(const std::string& file, const std::string& text);

}  // namespace gpuloom
