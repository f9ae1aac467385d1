// SPDX-License-Identifier: Apache-2.0
// `gpuloom suspend` and `gpuloom resume`: stop a pod's work on the node's GPUs, and let it go on. Asks the schedulers over
// their control sockets; what it has said stays said when it has ended. One thread; waits for answers.
#pragma once

#include <chrono>
#include <string>

namespace gpuloom::run {

struct SuspendCommand {
  static constexpr std::chrono::milliseconds kDefaultTimeout{10'000};

  bool suspend = true;  // false: resume
  std::string pod_namespace;
  std::string pod;
  std::string container;                                // empty: all
  std::string state_dir;                                // as SearchedFolders
  std::chrono::milliseconds timeout = kDefaultTimeout;  // for what runs to end
};

// "NAMESPACE/POD" or "NAMESPACE/POD/CONTAINER". Returns false if it is neither.
[[nodiscard]] bool ParseTarget(const std::string& text, SuspendCommand* command);

struct SuspendOutcome {
  // 0: done. 1: nothing was changed, or not everywhere. 2: a mistake on the command line. 3: suspended, but work still
  // runs.
  int exit_status = 0;
  std::string text;     // what was done
  std::string trouble;  // what was not, and what to do next
};

SuspendOutcome Suspend(const SuspendCommand& command);

}  // namespace gpuloom::run
