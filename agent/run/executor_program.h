// SPDX-License-Identifier: Apache-2.0
// What the installed gpuloom-executor says about itself. Running executors may have been started from an older file;
// their scheduler reports their versions. One thread; waits for the program for at most ten seconds, because it looks
// for CUPTI first, which takes a while from a cold disk.
#pragma once

#include <string>

namespace gpuloom::run {

// What is shown before the reason why there is no CUPTI.
inline constexpr char kNoCupti[] = "none, so traces have the executors' own times: ";

struct ExecutorProgram {
  std::string version;  // "0.2.0 (abc)"; empty: `trouble` says why it is not known
  std::string trouble;
  // The CUPTI that it would trace with, "libcupti.so.2025.3.1, API 130000, /…"; if empty, why_no_cupti is the reason.
  // An older program says neither.
  std::string cupti;
  std::string why_no_cupti;
};

// Runs the executor that is installed with `program`, which is <root>/bin/<name>.
ExecutorProgram AskExecutorProgram(const std::string& program);

// Parses the program's output: a line with its version and, except from older programs, a line about CUPTI. Pure.
ExecutorProgram ReadExecutorVersion(const std::string& said);

}  // namespace gpuloom::run
