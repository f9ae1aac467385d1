// SPDX-License-Identifier: Apache-2.0
// `gpuloom top`: shows repeatedly what this machine's GPUs and tenants do. Asks the schedulers and changes nothing;
// ends by itself, by a key, or by a signal. One thread, which Top keeps until then; nothing outlives it. What a
// scheduler does not answer is said above or behind the tables, and the next look asks it again.
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
  int times = 0;  // how many tables; 0: no limit
  TopOrder order = TopOrder::kTime;
  Format format = Format::kTable;
};

// Draws a screen if standard output is a terminal and `times` is 0 for a table; otherwise prints one table or document
// after the other. Returns the exit status: kNotGood if there is no scheduler, or not all answered the last time.
int Top(TopCommand command);

}  // namespace gpuloom::run
