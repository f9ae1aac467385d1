// SPDX-License-Identifier: Apache-2.0
// `gpuloom trace`: the kernels and copies of all tenants of this machine's GPUs on one time line, as a file that
// Perfetto and chrome://tracing load (docs/tracing.md). Asks the schedulers over their control sockets. One thread;
// waits.
//
// SIGINT and SIGTERM end the trace early: what was recorded until then is written.
#pragma once

#include <chrono>
#include <string>

#include "agent/answer/answer.h"

namespace gpuloom::run {

struct TraceCommand {
  std::chrono::milliseconds time{0};
  std::string file;       // "-": standard output
  std::string state_dir;  // as SearchedFolders
};

// kNotGood: nothing was written. kPartly: written, but something is missing. `text` says who used the GPUs meanwhile.
Answer Trace(const TraceCommand& command);

}  // namespace gpuloom::run
