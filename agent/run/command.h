// SPDX-License-Identifier: Apache-2.0
// Runs the user's command in the foreground, with our input, output and terminal, and passes on the signals that are
// sent to us. Called from main's thread, the only one.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gpuloom::run {

// Blocks the signals that RunCommand handles; call it right before RunCommand.
void BlockSignals();

// The command's exit status; 128 + signal when a signal ended it; 127 when it was not found, 126
// when it could not be run. `environment` is set beside what we were started with. `watched_fd`
// readable calls `on_watched` once.
[[nodiscard]] int RunCommand(const std::vector<std::string>& command,
                             const std::vector<std::pair<std::string, std::string>>& environment,
                             int watched_fd, const std::function<void()>& on_watched);

}  // namespace gpuloom::run
