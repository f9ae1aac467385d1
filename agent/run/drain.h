// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain`: this machine's GPUs get nobody new, until that is undone. The order lies in the GPU's folder
// (agent/node/gpu_standing.h), where the agent and `gpuloom run` find it; what runs goes on. One thread; waits for answers,
// and as long as it is told for tenants to end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct DrainCommand {
  bool undo = false;
  std::string gpu;     // a UUID, or its beginning, or what the folder is called; empty: all
  std::string reason;  // for whoever asks why
  bool wait = false;
  std::optional<std::chrono::milliseconds> timeout;  // of waiting; none: without end
  std::string state_dir;                             // as SearchedFolders
  Format format = Format::kTable;
};

// kNotGood: not everywhere, or no such GPU. kPartly: drained, but tenants are still there when the time is over, or a
// GPU's scheduler, which knows them, has not come back within half a minute.
Answer Drain(const DrainCommand& command);

}  // namespace gpuloom::run
