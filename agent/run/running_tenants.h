// SPDX-License-Identifier: Apache-2.0
// Which tenants run on this machine's GPUs, for `gpuloom policy diff`: asks the schedulers, and reads the agent's files
// about the GPUs. One thread; waits for answers.
#pragma once

#include <string>

#include "agent/policy_command/change.h"

namespace gpuloom::run {

// That there is no scheduler is not reported as a trouble: then nobody runs.
Running RunningTenants(const std::string& state_dir);

}  // namespace gpuloom::run
