// SPDX-License-Identifier: Apache-2.0
// Text from outside as part of one line of a log or a message: whatever could begin another line, or write on a
// terminal, is spelt out (\n, \x1b), and what is too long is cut. UTF-8 stays as it is. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuloom {

// At most `most_bytes`, cut between two characters, and a mark ("…") that there was more.
std::string OneLine(std::string_view text, size_t most_bytes);

// The same into `out`, the mark included in `room_bytes` (at least its 3). Returns how many bytes were written. Takes
// no memory and no lock, so a signal handler may call it.
size_t WriteOneLine(std::string_view text, char* out, size_t room_bytes);

}  // namespace gpuloom
