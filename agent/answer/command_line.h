// SPDX-License-Identifier: Apache-2.0
// The option `-o` of commands that answer with tables. Called from main's thread.
#pragma once

#include <functional>

#include "agent/answer/output.h"

namespace CLI {
class App;
}

namespace gpuloom {

// `take` is called during parsing if the option is given.
void AddOutputOption(CLI::App* command, std::function<void(Format)> take);

}  // namespace gpuloom
