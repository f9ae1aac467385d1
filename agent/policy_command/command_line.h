// SPDX-License-Identifier: Apache-2.0
// `gpuloom policy …` on the command line.
#pragma once

#include "agent/policy_command/policy_command.h"

namespace CLI {
class App;
}

namespace gpuloom {

// Which says, once the line is parsed, whether it was asked for. `command` outlives the parsing.
const CLI::App* AddPolicyCommand(CLI::App* program, PolicyCommand* command);

}  // namespace gpuloom
