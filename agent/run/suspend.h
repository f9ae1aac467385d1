// SPDX-License-Identifier: Apache-2.0
// `gpuloom suspend` and `gpuloom resume`: stop a pod's work on the node's GPUs, and let it go on. Asks the schedulers
// over their control sockets; a suspension stays in force after the command has ended. One thread; waits for answers.
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
  std::chrono::milliseconds timeout = kDefaultTimeout;  // how long running work may take to end
  Format format = Format::kTable;
};

// "NAMESPACE/POD" or "NAMESPACE/POD/CONTAINER". Returns false if it is neither.
[[nodiscard]] bool ParseTarget(const std::string& text, SuspendCommand* command);

// kNotGood: not done, or not on all GPUs. kPartly: suspended, but work still runs. `text` says what was done; as JSON
// or YAML, the state of all containers that the command names.
Answer Suspend(const SuspendCommand& command);

}  // namespace gpuloom::run
