// SPDX-License-Identifier: Apache-2.0
// All commands and options of a command line, and what is generated from them: shell completion and manual pages. Pure
// and safe from any thread, except WriteManPages.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gpuloom::run {

struct OptionEntry {
  std::vector<std::string> names;  // "-o", "--output"; for a positional its name only
  std::string value;               // the kind of its value: "TEXT"; empty: it takes none
  std::vector<std::string> choices;
  std::string about;  // one line
};

struct CommandEntry {
  std::string path;   // "policy check"; empty: the program
  std::string about;  // lines
  std::vector<OptionEntry> options, positionals;
  std::vector<std::string> subcommands;  // names; hidden ones are left out
};

// The program comes first, and each command before its subcommands.
std::vector<CommandEntry> ListCommands(const CLI::App& program);

// `shell` is bash, zsh or fish.
std::string CompletionScript(const std::vector<CommandEntry>& commands, const std::string& shell);

// The name of a command's manual page, in section 1: "gpuloom-policy-check".
std::string ManPageName(const CommandEntry& command);
std::string ManPage(const std::vector<CommandEntry>& commands, const CommandEntry& command);
// Writes one file NAME.1 for each command into the folder, which it creates. False with a message.
[[nodiscard]] bool WriteManPages(const std::vector<CommandEntry>& commands,
                                 const std::string& folder, std::string* error);

}  // namespace gpuloom::run
