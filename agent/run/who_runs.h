// SPDX-License-Identifier: Apache-2.0
// Who runs on this machine's GPUs, for `gpuloom policy diff`: asks the schedulers, and reads what the agent has written of the
// GPUs. One thread; waits for answers.
#pragma once

#include <string>

#include "agent/policy_command/change.h"

namespace gpuloom::run {

// That no scheduler is there is no trouble: then nobody runs.
Running WhoRuns(const std::string& state_dir);

}  // namespace gpuloom::run
