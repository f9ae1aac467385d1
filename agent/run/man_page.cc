// SPDX-License-Identifier: Apache-2.0
// Manual pages in man(7)'s macros.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/run/command_list.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

// Escapes text: no macro at the beginning of a line, no escape sequence, no hyphen in place of a minus.
std::string Roff(const std::string& text) {
  std::string roff;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
    begins_line = c == '\n';
  }
  return roff;
}

std::string Bold(const std::string& text) { return "\\fB" + Roff(text) + "\\fR"; }
std::string Italic(const std::string& text) { return "\\fI" + Roff(text) + "\\fR"; }

std::string ProgramAndPath(const CommandEntry& command) {
  return "gpuloom" + (command.path.empty() ? "" : " " + command.path);
}

// The choices for the option's value, or the value's name.
std::string Value(const OptionEntry& option) {
  if (option.choices.empty()) return Italic(option.value);
  std::string text;
  for (const std::string& choice : option.choices) text += (text.empty() ? "" : "|") + Bold(choice);
  return text;
}

std::string Synopsis(const CommandEntry& command) {
  std::string text = Bold(ProgramAndPath(command));
  if (!command.options.empty()) text += " [" + Italic("options") + "]";
  if (!command.subcommands.empty()) text += " " + Italic("command");
  for (const OptionEntry& one : command.positionals) text += " " + Italic(one.names[0]);
  return text;
}

// .TP: the head on a line of its own, what it means below, indented.
std::string Entry(const std::string& head, const std::string& about) {
  return ".TP\n" + head + "\n" + Roff(about) + "\n";
}

}  // namespace

std::string ManPageName(const CommandEntry& command) {
  std::string name = ProgramAndPath(command);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string ManPage(const std::vector<CommandEntry>& commands, const CommandEntry& command) {
  const std::string name = ManPageName(command);
  const std::string version = kVersion;
  const size_t first_end = std::min(command.about.find('\n'), command.about.size());
  std::string text =
      ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH \"" + Roff(name) + "\" 1 \"\" \"gpuloom " +
      version.substr(0, version.find(' ')) + "\" \"gpuloom\"\n.SH NAME\n" + Roff(name) + " \\- " +
      Roff(command.about.substr(0, first_end)) + "\n.SH SYNOPSIS\n" + Synopsis(command) + "\n";
  // What follows the first line, examples above all. .nf keeps its lines as they are.
  if (first_end < command.about.size()) {
    text += ".SH DESCRIPTION\n.nf\n" + Roff(command.about.substr(first_end + 1)) + "\n.fi\n";
  }
  if (!command.subcommands.empty()) text += ".SH COMMANDS\n";
  // Only a command's own; theirs have pages of their own.
  for (const CommandEntry& other : commands) {
    const size_t parent = other.path.rfind(' ');
    const std::string parent_path = parent == other.path.npos ? "" : other.path.substr(0, parent);
    if (other.path.empty() || parent_path != command.path) continue;
    text += Entry(Bold(other.path), other.about.substr(0, other.about.find('\n')) + "\nSee " +
                                        ManPageName(other) + "(1).");
  }
  if (!command.positionals.empty()) text += ".SH ARGUMENTS\n";
  for (const OptionEntry& one : command.positionals) {
    text += Entry(one.choices.empty() ? Italic(one.names[0]) : Value(one), one.about);
  }
  if (!command.options.empty()) text += ".SH OPTIONS\n";
  for (const OptionEntry& option : command.options) {
    std::string head;
    for (const std::string& one : option.names) head += (head.empty() ? "" : ", ") + Bold(one);
    text += Entry(option.value.empty() ? head : head + " " + Value(option), option.about);
  }
  text +=
      ".SH EXIT STATUS\n"
      "0: it is so, or done. 1: it is not, or not everywhere. 2: a mistake on the command line, or "
      "in a file that it "
      "names. 3: done, but its effect takes longer than was to be waited for, or something is "
      "missing. 125: gpuloom run "
      "could not start its "
      "command, whose own status it otherwise returns.\n";
  if (!command.path.empty()) text += ".SH SEE ALSO\n" + Bold("gpuloom") + "(1)\n";
  return text;
}

bool WriteManPages(const std::vector<CommandEntry>& commands, const std::string& folder,
                   std::string* error) {
  std::error_code failed;
  // If it fails, so does the first file, and the message has both.
  std::filesystem::create_directories(folder, failed);
  for (const CommandEntry& command : commands) {
    const std::string path = folder + "/" + ManPageName(command) + ".1";
    std::ofstream file(path, std::ios::trunc);
    file << ManPage(commands, command) << std::flush;
    if (!file) {
      *error = "cannot write " + path + (failed ? ": " + failed.message() : "");
      return false;
    }
  }
  return true;
}

}  // namespace gpuloom::run
