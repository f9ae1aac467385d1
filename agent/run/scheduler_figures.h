// SPDX-License-Identifier: Apache-2.0
// What this machine's schedulers say of their GPUs and tenants, asked over their control sockets. Changes nothing. One
// thread; waits for answers, five seconds at most for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/node/one_line.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::run {

// A name as it is shown: a tenant chooses its own.
template <size_t N>
std::string Text(const char (&field)[N]) {
  constexpr size_t kLongestName = 300;  // longer than Kubernetes' are
  return OneLine({field, control::TextLength(field)}, kLongestName);
}

struct SchedulerFigures {
  std::string folder;
  bool speaks_3_3 = false;  // `gpu` and `domains` are known
  bool speaks_3_4 = false;
  uint64_t memory_bytes = 0;
  control::GpuState gpu{};
  std::vector<control::DomainState> domains;
  std::vector<control::AllocationState> allocations;  // those that are bound

  // The GPU's UUID; of an older release's scheduler the folder, which the agent names after the GPU.
  std::string name() const;
};

struct AllFigures {
  std::vector<SchedulerFigures> schedulers;  // by folder
  // Which did not answer and why, or that there is none and where it was looked for; one line each, without their ends.
  // A socket that a scheduler has left behind is no scheduler.
  std::vector<std::string> troubles;
  bool none_found = false;  // and that alone is the trouble
};

// `state_dir` as SearchedFolders has it.
AllFigures AskSchedulers(const std::string& state_dir);

// What is wrong with a tenant, or that it runs: a word or two.
std::string StateOf(const control::AllocationState& state);

}  // namespace gpuloom::run
