// SPDX-License-Identifier: Apache-2.0
// `gpuloom tenants`, `gpuloom gpus` and `gpuloom version`: who uses this machine's GPUs, how much, since when, and by which
// release; `gpuloom refusals`: what pods were refused, and why. Asks the schedulers over their control sockets, reads what the
// agent has written, and changes nothing. One thread; waits for answers.
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

// kNotGood: not all schedulers have answered, or there is none; `text` is what those said that have.
Answer AnswerAboutStatus(const StatusCommand& command);

}  // namespace gpuloom::run
