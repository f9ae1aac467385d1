// SPDX-License-Identifier: Apache-2.0
#include "agent/node/command_mistake.h"

#include <CLI/CLI.hpp>
#include <vector>

namespace gpuloom {
namespace {

// "run, policy, …": but for those that no help shows.
std::string CommandsOf(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

}  // namespace

std::string CommandMistake(const std::string& program, const CLI::App& app,
                           const CLI::Error& error) {
  const CLI::App* command = &app;
  std::string path = program;
  // The mistake belongs to the innermost command that was named: whose help is worth reading.
  for (auto parsed = app.get_subcommands(); !parsed.empty(); parsed = command->get_subcommands()) {
    command = parsed.front();
    path += " " + command->get_name();
  }
  const std::string commands = CommandsOf(*command);
  const auto is = [&error](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  const bool lacks_command = !commands.empty() && is(CLI::ExitCodes::RequiredError);
  std::vector<std::string> unexpected = app.remaining(/*recurse=*/true);
  // CLI11 counts it among what is left over.
  std::erase(unexpected, "--");
  std::string what = error.what();
  if (!unexpected.empty() && (lacks_command || is(CLI::ExitCodes::ExtrasError))) {
    what = commands.empty() || unexpected[0].starts_with('-')
               ? "'" + unexpected[0] + "' is not expected"
               : "there is no command '" + unexpected[0] + "'; there are " + commands;
  } else if (lacks_command) {
    what = "say what: " + commands;
  }
  return path + ": " + what + "\nSee " + path + " --help\n";
}

}  // namespace gpuloom
