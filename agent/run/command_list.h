// SPDX-License-Identifier: Apache-2.0
// All commands and options of a command line as it is defined, and what is made from that: completion for shells and manual
// pages. But for WriteManPages pure and safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gpuloom::run {

struct OptionEntry {
  std::vector<std::string> names;  // "-o", "--output"; of a positional its name alone
  std::string value;               // what it takes: "TEXT"; empty: nothing
  std::vector<std::string> choices;
  std::string about;  // one line
};

struct CommandEntry {
  std::string path;   // "policy check"; empty: the program
  std::string about;  // lines
  std::vector<OptionEntry> options, positionals;
  std::vector<std::string> subcommands;  // names; hidden ones are left out
};

// The program first, each command before its own.
std::vector<CommandEntry> ListCommands(const CLI::App& program);

// For bash, zsh or fish.
std::string CompletionScript(const std::vector<CommandEntry>& commands, const std::string& shell);

// Of one of them, section 1: "gpuloom-policy-check".
std::string ManPageName(const CommandEntry& command);
std::string ManPage(const std::vector<CommandEntry>& commands, const CommandEntry& command);
// One file each, NAME.1, in a folder that is made. False with a message.
[[nodiscard]] bool WriteManPages(const std::vector<CommandEntry>& commands,
                                 const std::string& folder, std::string* error);

}  // namespace gpuloom::run
