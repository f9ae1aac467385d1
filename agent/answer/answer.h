// SPDX-License-Identifier: Apache-2.0
// What a command of `gpuloom` has to say, and the exit statuses that all of them share (docs/cli.md).
#pragma once

#include <string>

namespace gpuloom {

inline constexpr int kGood = 0;
inline constexpr int kNotGood = 1;  // no, or not everywhere, or not all of it: `trouble` says what
inline constexpr int kMistake = 2;  // of the command line, or in a file that it names
inline constexpr int kPartly =
    3;  // it is done, and its effect takes longer than was to be waited for

struct Answer {
  std::string text;     // to standard output; may be part of an answer
  std::string trouble;  // to standard error
  int exit_status = kGood;
};

}  // namespace gpuloom
