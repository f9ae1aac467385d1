// SPDX-License-Identifier: Apache-2.0
// What gpuloom-executor as it is installed says of itself. Executors that run may have been started from an older file: what
// they are of, their scheduler says. One thread; waits for the program, ten seconds at most.
#pragma once

#include <string>

namespace gpuloom::run {

// Before the reason.
inline constexpr char kNoCupti[] = "none, so traces have the executors' own times: ";

struct ExecutorProgram {
  std::string version;  // "0.2.0 (abc)"; empty: `trouble` says why it is not known
  std::string trouble;
  // What it would trace with, "libcupti.so.2025.3.1, API 130000, /…"; empty: why not. An older one says neither.
  std::string cupti;
  std::string why_no_cupti;
};

// The one that is installed with `program`, which is <root>/bin/<name>.
ExecutorProgram AskExecutorProgram(const std::string& program);

// Of its two lines, of which older ones have the first only; pure.
ExecutorProgram ReadExecutorVersion(const std::string& said);

}  // namespace gpuloom::run
