// SPDX-License-Identifier: Apache-2.0
// Reads a policy from YAML text. Pure; safe from any thread. Every message starts with file:line:column and names the
// key. An unknown key (the message suggests the nearest known one), a repeated key and a repeated namespace are errors.
#pragma once

#include <optional>
#include <string>

#include "agent/policy/policy.h"

namespace gpuloom {

// `file` is used in messages only. Empty text is the empty policy: the built-in defaults. nullopt with the first
// mistake if the text is not a policy.
[[nodiscard]] std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                                std::string* error);

}  // namespace gpuloom
