// SPDX-License-Identifier: Apache-2.0
// What gpuloom-executor as it is installed says of itself. Executors that run may have been started from an older file:
// they say nothing of it. One thread; waits for the program, ten seconds at most.
#pragma once

#include <string>

namespace gpuloom::run {

struct ExecutorProgram {
  std::string version;  // "0.2.0 (abc)"; empty: `trouble` says why it is not known
  std::string trouble;
  std::string cupti;  // what it would trace with, "libcupti.so.2025.3.1, API 130000, /…"; empty:
  std::string why_no_cupti;
};

// The one that is installed with `program`, which is <root>/bin/<name>.
ExecutorProgram AskExecutorProgram(const std::string& program);

// Of its two lines; pure.
ExecutorProgram ReadExecutorVersions(const std::string& said);

}  // namespace gpuloom::run
