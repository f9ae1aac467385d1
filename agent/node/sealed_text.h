// SPDX-License-Identifier: Apache-2.0
// The form of texts that an agent keeps in its state: the text, and a last line that says how long it is and its sum, because
// half a policy is another policy. A comment of YAML, so that what was YAML still is. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// Of the last line, at most.
inline constexpr size_t kMaxSealBytes = 128;

std::string SealText(const std::string& text);

enum class Seal { kWhole, kDamaged, kNewer };
// kWhole: *text is what was sealed. kNewer: in *format, which is a later release's.
[[nodiscard]] Seal UnsealText(const std::string& content, std::string* text, int* format);

}  // namespace gpuloom
