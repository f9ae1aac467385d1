// SPDX-License-Identifier: Apache-2.0
// `gpuloom top`: what this machine's GPUs and tenants do now, again and again. Asks the schedulers and changes nothing; ends by
// itself, by a key, or by a signal. One thread.
#pragma once

#include <chrono>
#include <string>

#include "agent/answer/output.h"
#include "agent/run/top_view.h"

namespace gpuloom::run {

struct TopCommand {
  static constexpr std::chrono::milliseconds kDefaultInterval{2000};

  std::string state_dir;  // as SearchedFolders
  std::chrono::milliseconds interval = kDefaultInterval;
  int times = 0;  // how many tables; 0: without end
  TopOrder order = TopOrder::kTime;
  Format format = Format::kTable;
};

// A screen if standard output is a terminal and a table without end is wanted; else one table or document below the other.
// Returns the exit status: kNotGood if not all schedulers answered the last time, or none is there.
int Top(TopCommand command);

}  // namespace gpuloom::run
