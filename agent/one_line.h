// Text from outside as part of one line of a log or a message: whatever could begin another line, or write on a
// terminal, is spelt out (\n, \x1b), and what is too long is cut. Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpuloom {

// At most `most_bytes` and a mark that there was more. UTF-8 stays as it is.
std::string OneLine(std::string_view text, size_t most_bytes);

}  // namespace gpuloom
