// SPDX-License-Identifier: Apache-2.0
// The answer of a command of `gpuloom`, and the exit statuses that all of them share (docs/cli.md). Plain values.
#pragma once

#include <string>

namespace gpuloom {

inline constexpr int kGood = 0;
inline constexpr int kNotGood = 1;  // no, not everywhere, or not completely: `trouble` says what
inline constexpr int kMistake = 2;  // a mistake on the command line, or in a file that it names
inline constexpr int kPartly =
    3;  // it is done, but its full effect takes longer than the command waited

struct Answer {
  std::string text;     // for standard output; may be incomplete
  std::string trouble;  // for standard error
  int exit_status = kGood;
};

}  // namespace gpuloom
