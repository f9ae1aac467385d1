// SPDX-License-Identifier: Apache-2.0
// Reads a policy from YAML text. Pure, safe from any thread. Every message starts with file:line:column
// and names the key; an unknown key, a repeated key and a repeated namespace are errors, the first
// with the nearest known key.
#pragma once

#include <optional>
#include <string>

#include "agent/policy/policy.h"

namespace gpuloom {

// `file` is used in messages only. Empty text is the empty policy: the built-in defaults. nullopt, and what is wrong
// first, when it is no policy.
[[nodiscard]] std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                                std::string* error);

}  // namespace gpuloom
