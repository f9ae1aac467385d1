// SPDX-License-Identifier: Apache-2.0
// Another program of ours, run for what it says. One thread; waits for the program, for `patience` and two seconds at
// most. The program is the call's own: when it returns, that has ended or was killed. A caller that reaps every child
// may take its exit status first, which then counts as 0.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace gpuloom {

struct ProgramOutput {
  std::string trouble;             // it could not be started; empty: it was
  std::string said;                // to both its outputs, the first `most_bytes`
  std::optional<int> wait_status;  // nothing: it had not ended, and was killed
};

// The first of `arguments` is the program's path.
ProgramOutput RunForOutput(const std::vector<std::string>& arguments,
                           std::chrono::seconds patience = std::chrono::seconds(10),
                           size_t most_bytes = 4096);

}  // namespace gpuloom
