// SPDX-License-Identifier: Apache-2.0
// Text from outside as part of one line of a log, a message or a table: whatever could start another line, control a
// terminal or is no UTF-8 is escaped byte by byte (\n, \x1b), and text that is too long is cut. Words of any language stay
// as they are. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuloom {

// At most `most_bytes`, cut at a character boundary, with a mark ("…") if there was more.
std::string OneLine(std::string_view text, size_t most_bytes);

// The same into `out`, the mark included in `room_bytes` (at least its 3). Returns the number of bytes written.
// Allocates no memory and takes no lock, so a signal handler may call it.
size_t WriteOneLine(std::string_view text, char* out, size_t room_bytes);

}  // namespace gpuloom
