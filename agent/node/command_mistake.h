// SPDX-License-Identifier: Apache-2.0
// What a program says of a mistake on its command line, for CLI::App::failure_message. Pure; safe from any thread.
#pragma once

#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace gpuloom {

// "gpuloom trace: --seconds is required", and below it whose help to read. A word that is no command of the program's comes
// with those that there are. `app` is the program's own, parsed as far as it went.
std::string CommandMistake(const std::string& program, const CLI::App& app,
                           const CLI::Error& error);

}  // namespace gpuloom
