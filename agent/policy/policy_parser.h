// SPDX-License-Identifier: Apache-2.0
// Reads a policy from YAML text. Pure; safe from any thread. Every message starts with file:line:column and names the
// key. An unknown key (the message suggests the nearest known one), a repeated key and a repeated namespace are errors.
#pragma once

#include <optional>
#include <string>

#include "agent/policy/policy.h"
#include "agent/policy/policy_mistakes.h"

namespace gpuloom {

// What a text is that says nothing: an empty one, one of comments only, or null. Nobody means it, and it would lift every limit:
// a file is empty between the moment when it is cut off and the one when it is written anew. Former releases took it for a policy
// without rules, and what they have kept of it stays in force.
enum class EmptyText { kMistake, kNoRules };

// nullopt with the mistakes if the text is not a policy; `mistakes` is without any before. Text that is not YAML is one mistake.
// A map without keys, {}, is a policy without rules: the built-in defaults.
[[nodiscard]] std::optional<Policy> ParsePolicy(const std::string& text, PolicyMistakes* mistakes,
                                                EmptyText empty = EmptyText::kMistake);

// The same for those who have room for one line: with the mistake that is the first in the text. `file` is used in messages only.
[[nodiscard]] std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                                std::string* error,
                                                EmptyText empty = EmptyText::kMistake);

}  // namespace gpuloom
