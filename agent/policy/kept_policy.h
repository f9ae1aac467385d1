// SPDX-License-Identifier: Apache-2.0
// The form in which an agent keeps the last good policy: YAML as the operator wrote it, with a last line, a comment, that says
// how long it is and its sum: half a policy is another policy. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// In the agent's state folder.
inline constexpr char kKeptPolicyName[] = "last-good-policy.yaml";
// Of the last line, at most.
inline constexpr size_t kMaxSealBytes = 128;

std::string SealPolicy(const std::string& text);

enum class Kept { kWhole, kDamaged, kNewer };
// kWhole: *text is what was sealed. kNewer: in *format, which is a later release's.
[[nodiscard]] Kept UnsealPolicy(const std::string& content, std::string* text, int* format);

}  // namespace gpuloom
