// SPDX-License-Identifier: Apache-2.0
#include "agent/run/command_list.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace gpuloom::run {
namespace {

// The choices in a type such as "TEXT:{json,yaml}".
std::vector<std::string> ChoicesOf(const std::string& type) {
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == type.npos || end == type.npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// An option or positional, as CLI11 describes it: its type's name is "TEXT:{json,yaml}" where a
// check allows only some words.
OptionEntry EntryOf(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  // A positional has neither short nor long names.
  if (entry.names.empty()) entry.names.push_back(option.get_name(true));
  // A flag takes no value.
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    entry.value = type.substr(0, type.find(':'));
    entry.choices = ChoicesOf(type);
  }
  entry.about = option.get_description();
  return entry;
}

// The command itself first, then each of its own with all below it.
void List(const CLI::App& app, const std::string& path, std::vector<CommandEntry>* list) {
  CommandEntry entry{path, app.get_description(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    (option->nonpositional() ? entry.options : entry.positionals).push_back(EntryOf(*option));
  }
  const auto subcommands =
      app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
  for (const CLI::App* one : subcommands) entry.subcommands.push_back(one->get_name());
  list->push_back(std::move(entry));
  for (const CLI::App* one : subcommands) {
    List(*one, path + (path.empty() ? "" : " ") + one->get_name(), list);
  }
}

}  // namespace

std::vector<CommandEntry> ListCommands(const CLI::App& program) {
  std::vector<CommandEntry> list;
  List(program, "", &list);
  return list;
}

}  // namespace gpuloom::run
