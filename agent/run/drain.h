// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain`: this machine's GPUs get nobody new, until that is undone. The order lies in the GPU's folder
// (agent/node/gpu_standing.h), where the agent and `gpuloom run` find it; what runs goes on. Who holds slots of an agent's GPUs
// its records say, with or without a scheduler; elsewhere the scheduler. One thread; waits for answers, and as long as it is
// told for tenants to end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct DrainCommand {
  bool undo = false;
  std::string
      gpu;  // a UUID, or a beginning that one GPU alone has, or what the folder is called; empty: all
  std::string reason;  // for whoever asks why
  bool wait = false;
  std::optional<std::chrono::milliseconds> timeout;  // of waiting; nullopt: no limit
  std::string state_dir;                             // as SearchedFolders
  Format format = Format::kTable;
};

// Called with each line that whoever waits should see at once, without its end.
using Tell = std::function<void(const std::string& line)>;

// kNotGood: not everywhere, or no such GPU; then it does not wait. kPartly: drained, but somebody still holds slots when the
// time is over, or it has not been known for half a minute who does.
Answer Drain(const DrainCommand& command, const Tell& tell);

}  // namespace gpuloom::run
