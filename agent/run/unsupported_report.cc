// SPDX-License-Identifier: Apache-2.0
#include "agent/run/unsupported_report.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace gpuloom::run {

std::string UnsupportedLine(const control::AllocationState& state) {
  if (state.unsupported_count == 0) return "";
  std::string names = control::TextOf(state.unsupported);
  for (size_t at = 0; (at = names.find('\n', at)) != std::string::npos;) {
    // One name a line, as the scheduler tells them.
    names.replace(at, 1, at + 1 == names.size() ? "" : ", ");
  }
  return "gpuloom: " + std::to_string(state.unsupported_count) + " unsupported CUDA function" +
         (state.unsupported_count == 1 ? " was" : "s were") + " asked for: " + names + "\n";
}

void SayUnsupported(const std::string& allocation, control::Client* client) {
  constexpr int kMaxPolls = 50;
  constexpr useconds_t kPauseUs = 5000;
  std::string error;
  std::vector<control::AllocationState> states;
  for (int look = 0; look < kMaxPolls; ++look) {
    if (!client->connected() || !client->ListAllocations(&states, &error)) return;
    const auto ours =
        std::find_if(states.begin(), states.end(), [&](const control::AllocationState& state) {
          return allocation == std::string_view(state.name, control::TextLength(state.name));
        });
    if (ours == states.end()) return;
    // The last look counts whatever it shows: something in the background may go on with the
    // session.
    if (ours->sessions != 0 && look + 1 < kMaxPolls) {
      usleep(kPauseUs);
      continue;
    }
    fputs(UnsupportedLine(*ours).c_str(), stderr);
    return;
  }
}

}  // namespace gpuloom::run
