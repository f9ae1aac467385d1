// SPDX-License-Identifier: Apache-2.0
// Defines `gpuloom policy …` on the command line. Called once, from main's thread.
#pragma once

#include "agent/policy_command/policy_command.h"

namespace CLI {
class App;
}

namespace gpuloom {

// Returns the subcommand, which `program` owns and which says, once the line is parsed, whether it was given. `command`
// must outlive the parsing.
const CLI::App* AddPolicyCommand(CLI::App* program, PolicyCommand* command);

}  // namespace gpuloom
