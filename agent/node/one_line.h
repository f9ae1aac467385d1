// SPDX-License-Identifier: Apache-2.0
// Makes text from outside fit into one line of a log, a message or a table: bytes that could start another line or
// control a terminal, or that are not UTF-8, are escaped one by one (\n, \x1b), and text that is too long is cut. Words
// of any language stay as they are. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuloom {

// For names in lines for people: longer than Kubernetes' are.
inline constexpr size_t kLongestNameBytes = 300;

// At most `most_bytes`, cut at a character boundary and marked ("…") if the text was longer.
std::string OneLine(std::string_view text, size_t most_bytes);

// The same into `out`, the mark included in `room_bytes` (at least its 3). Returns the number of bytes written.
// Allocates no memory and takes no lock, so a signal handler may call it.
size_t WriteOneLine(std::string_view text, char* out, size_t room_bytes);

}  // namespace gpuloom
