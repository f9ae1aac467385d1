// SPDX-License-Identifier: Apache-2.0
// The message for a mistake on a command line, for CLI::App::failure_message. Pure; safe from any thread.
#pragma once

#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace gpuloom {

// "gpuloom trace: --seconds is required", and below it which help to read. For a word that is not a command of the
// program, lists the commands that exist. `app` is the program's, parsed up to the mistake.
std::string CommandMistake(const std::string& program, const CLI::App& app,
                           const CLI::Error& error);

}  // namespace gpuloom
