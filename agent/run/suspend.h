// SPDX-License-Identifier: Apache-2.0
// `gpuloom suspend` and `gpuloom resume`: stop a pod's work on the node's GPUs, and let it go on. Asks the schedulers over
// their control sockets; what it has said stays said when it has ended. One thread; waits for answers.
#pragma once

#include <chrono>
#include <string>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct SuspendCommand {
  static constexpr std::chrono::milliseconds kDefaultTimeout{10'000};

  bool suspend = true;  // false: resume
  std::string pod_namespace;
  std::string pod;
  std::string container;                                // empty: all
  std::string state_dir;                                // as SearchedFolders
  std::chrono::milliseconds timeout = kDefaultTimeout;  // for what runs to end
  Format format = Format::kTable;
};

// "NAMESPACE/POD" or "NAMESPACE/POD/CONTAINER". Returns false if it is neither.
[[nodiscard]] bool ParseTarget(const std::string& text, SuspendCommand* command);

// kNotGood: nothing was changed, or not everywhere. kPartly: suspended, but work still runs. `text` is what was done; of a
// document, how all containers stand that were meant.
Answer Suspend(const SuspendCommand& command);

}  // namespace gpuloom::run
