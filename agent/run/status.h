// SPDX-License-Identifier: Apache-2.0
// `gpuloom tenants`, `gpuloom gpus` and `gpuloom version`: who uses this machine's GPUs, how much, and by which release.
// Asks the schedulers over their control sockets and changes nothing. One thread; waits for answers.
#pragma once

#include <string>

namespace gpuloom::run {

struct StatusCommand {
  enum class About { kTenants, kGpus, kVersions };

  About about = About::kTenants;
  std::string state_dir;  // as SearchedFolders
  bool json = false;      // else a table for people
};

struct StatusAnswer {
  // 0: all schedulers have answered. 1: not all, or there is none; `text` is what those said that have.
  int exit_status = 0;
  std::string text;
  std::string trouble;  // which did not, and why
};

StatusAnswer AnswerAboutStatus(const StatusCommand& command);

}  // namespace gpuloom::run
