// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain`: keeps new tenants off this machine's GPUs until that is undone. The order lies in the GPU's folder
// (agent/node/gpu_standing.h), where the agent and `gpuloom run` find it; running tenants go on. One thread; waits for
// answers and, on request, for tenants to end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct DrainCommand {
  bool undo = false;
  std::string gpu;     // a UUID, its beginning, or the folder's name; empty: all
  std::string reason;  // shown with the GPU's state
  bool wait = false;
  std::optional<std::chrono::milliseconds> timeout;  // of waiting; nullopt: no limit
  std::string state_dir;                             // as SearchedFolders
  Format format = Format::kTable;
};

// kNotGood: not done for all GPUs, or no such GPU. kPartly: drained, but tenants are still there when the time is over,
// or a GPU's scheduler, which knows them, has not come back within half a minute.
Answer Drain(const DrainCommand& command);

}  // namespace gpuloom::run
