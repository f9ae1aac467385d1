// SPDX-License-Identifier: Apache-2.0
// `gpuloom trace`: the kernels and copies of all tenants of this machine's GPUs on one time line, as a file that Perfetto
// and chrome://tracing load (docs/tracing.md). Asks the schedulers over their control sockets. One thread; waits.
//
// SIGINT and SIGTERM end the trace early: what there is is written.
#pragma once

#include <chrono>
#include <string>

namespace gpuloom::run {

struct TraceCommand {
  std::chrono::milliseconds time{0};
  std::string file;       // "-": standard output
  std::string state_dir;  // as SearchedFolders
};

struct TraceOutcome {
  // 0: written. 1: not written. 3: written, and something is missing, which `trouble` says.
  int exit_status = 0;
  std::string text;  // who has used the GPUs meanwhile
  std::string trouble;
};

TraceOutcome Trace(const TraceCommand& command);

}  // namespace gpuloom::run
