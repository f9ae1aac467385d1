// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain`: keeps new tenants off this machine's GPUs until that is undone; running tenants
// go on. The order is a file in the GPU's folder (agent/node/gpu_standing.h), which the agent and
// `gpuloom run` read. Who holds slots comes from the agent's records, with or without a scheduler,
// and from the scheduler where there is no agent. Single-threaded; blocks for answers and, if asked
// to wait, until tenants have ended or its time is over.
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
  std::string gpu;     // a UUID or its unambiguous prefix, or the folder's name; empty: all
  std::string reason;  // shown to whoever asks why
  bool wait = false;
  std::optional<std::chrono::milliseconds> timeout;  // of waiting; nullopt: no limit
  std::string state_dir;                             // as SearchedFolders
  Format format = Format::kTable;
};

// Receives each progress line for whoever waits, without the newline.
using OnLine = std::function<void(const std::string& line)>;

// kNotGood: not drained everywhere, or no such GPU; then it does not wait. kPartly: drained, but
// slots are still held when the time is over, or for half a minute it was not known who holds them.
Answer Drain(const DrainCommand& command, const OnLine& on_line);

}  // namespace gpuloom::run
