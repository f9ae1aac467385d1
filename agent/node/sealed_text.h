// SPDX-License-Identifier: Apache-2.0
// The format of texts that an agent keeps in its state: the text and, as its last line, a seal with its length and
// checksum, because half a policy is another policy. The seal is a YAML comment, so that YAML stays YAML. Pure; safe
// from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// The most that the seal adds.
inline constexpr size_t kMaxSealBytes = 128;

std::string SealText(const std::string& text);

enum class Seal { kWhole, kDamaged, kNewer };
// kWhole: *text is what was sealed. kNewer: sealed by a later release, in *format.
[[nodiscard]] Seal UnsealText(const std::string& content, std::string* text, int* format);

}  // namespace gpuloom
