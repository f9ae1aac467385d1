// SPDX-License-Identifier: Apache-2.0
// `gpuloom tenants`, `gpuloom gpus` and `gpuloom version`: who uses this machine's GPUs, how much, since when, and with
// which release; `gpuloom refusals`: what pods were refused, and why. Asks the schedulers over their control sockets,
// reads the agent's files, and changes nothing. One thread; waits for answers.
#pragma once

#include <string>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct StatusCommand {
  enum class About { kTenants, kGpus, kRefusals, kVersions };

  About about = About::kTenants;
  std::string state_dir;  // as SearchedFolders
  Format format = Format::kTable;
};

// kNotGood: there is no scheduler, or not all have answered; `text` is then the answer of those that have.
Answer AnswerAboutStatus(const StatusCommand& command);

}  // namespace gpuloom::run
