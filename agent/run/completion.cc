// SPDX-License-Identifier: Apache-2.0
// Each script finds out the same way which command the line is at, and offers that command's words.
// `at` is the path of that command: every word that leads from it to one of its own is appended.
// The command of `gpuloom run` begins after --, and is not ours to complete.
//
// The scripts are made from the definition of the command line, so nothing in them need be kept in
// step by hand. Names of commands, options and choices are ours and need no quoting; descriptions
// do.
#include "agent/run/command_list.h"

namespace gpuloom::run {
namespace {

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string Joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// A shell shows one line for each word.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// The path is one of the list's own, so it is always found.
const CommandEntry& Find(const std::vector<CommandEntry>& commands, const std::string& path) {
  for (const CommandEntry& command : commands) {
    if (command.path == path) return command;
  }
  return commands.front();
}

std::string PathOf(const CommandEntry& command, const std::string& subcommand) {
  return command.path + (command.path.empty() ? "" : " ") + subcommand;
}

// Every step from a command to one of its own, as the shells' case wants it: "policy check", and " policy" for a
// first one.
std::vector<std::string> Steps(const std::vector<CommandEntry>& commands) {
  std::vector<std::string> steps;
  for (const CommandEntry& command : commands) {
    for (const std::string& name : command.subcommands) steps.push_back(command.path + " " + name);
  }
  return steps;
}

// A case of options that take a value of that kind: "top --sort" | …
std::string Cases(const CommandEntry& command, const OptionEntry& option) {
  std::vector<std::string> cases;
  for (const std::string& name : option.names)
    cases.push_back("\"" + command.path + " " + name + "\"");
  return Joined(cases, " | ");
}

// `complete -o default` offers files where the function offers nothing.
std::string Bash(const std::vector<CommandEntry>& commands) {
  std::string text =
      "# bash completion of gpuloom, made by: gpuloom completion bash\n"
      "_gpuloom() {\n"
      "  local at='' words='' i\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
      "      mapfile -t COMPREPLY < <(compgen -c -- \"$word\")\n"
      "      return\n"
      "    fi\n"
      "    case \"$at ${COMP_WORDS[i]}\" in\n      \"";
  text += Joined(Steps(commands), "\" | \"") +
          "\") at=${at:+$at }${COMP_WORDS[i]} ;;\n"
          "    esac\n"
          "  done\n"
          "  # What an option's value can be; otherwise a file.\n"
          "  case \"$at $previous\" in\n";
  for (const CommandEntry& command : commands) {
    for (const OptionEntry& option : command.options) {
      if (option.value.empty()) continue;
      text += "    " + Cases(command, option) + ") " +
              (option.choices.empty() ? "return" : "words='" + Joined(option.choices, " ") + "'") +
              " ;;\n";
    }
  }
  text += "    *) case \"$at\" in\n";
  for (const CommandEntry& command : commands) {
    std::vector<std::string> words = command.subcommands;
    for (const OptionEntry& one : command.positionals) {
      words.insert(words.end(), one.choices.begin(), one.choices.end());
    }
    for (const OptionEntry& option : command.options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
    }
    text += "      \"" + command.path + "\") words='" + Joined(words, " ") + "' ;;\n";
  }
  return text +
         "    esac ;;\n"
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "}\n"
         "complete -o default -F _gpuloom gpuloom\n";
}

// 'name:what it does', for zsh.
std::string Described(const std::string& name, const std::string& about) {
  return "'" + Replaced(name, ":", "\\:") + ":" + Replaced(FirstLine(about), "'", "'\\''") + "'";
}

// zsh's words count from 1, and its arrays of descriptions are what _describe shows.
std::string Zsh(const std::vector<CommandEntry>& commands) {
  std::string text =
      "#compdef gpuloom\n"
      "# zsh completion of gpuloom, made by: gpuloom completion zsh\n"
      "_gpuloom() {\n"
      "  local at='' i\n"
      "  local -a names options\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    if [[ ${words[i]} == -- ]]; then\n"
      "      _command_names -e || _files\n"
      "      return\n"
      "    fi\n"
      "    case \"$at ${words[i]}\" in\n      (\"";
  text += Joined(Steps(commands), "\"|\"") +
          "\") at=\"${at:+$at }${words[i]}\" ;;\n"
          "    esac\n"
          "  done\n"
          "  case \"$at ${words[CURRENT-1]}\" in\n";
  for (const CommandEntry& command : commands) {
    for (const OptionEntry& option : command.options) {
      if (option.value.empty()) continue;
      text += "    (" + Replaced(Cases(command, option), " | ", "|") + ") " +
              (option.choices.empty() ? "_files" : "compadd -- " + Joined(option.choices, " ")) +
              "; return ;;\n";
    }
  }
  text += "  esac\n  case \"$at\" in\n";
  for (const CommandEntry& command : commands) {
    text += "    (\"" + command.path + "\")\n      names=(";
    for (const std::string& name : command.subcommands) {
      text += "\n        " + Described(name, Find(commands, PathOf(command, name)).about);
    }
    for (const OptionEntry& one : command.positionals) {
      for (const std::string& choice : one.choices)
        text += "\n        " + Described(choice, one.about);
    }
    text += ")\n      options=(";
    for (const OptionEntry& option : command.options) {
      for (const std::string& name : option.names)
        text += "\n        " + Described(name, option.about);
    }
    text += ") ;;\n";
  }
  return text +
         "  esac\n"
         "  (( $#names )) && _describe command names\n"
         "  _describe -o option options\n"
         "  (( $#names )) || _files\n"
         "}\n"
         "# Sourced, it has yet to be made known; as a file of fpath it is called.\n"
         "if [[ $funcstack[1] == _gpuloom ]]; then _gpuloom \"$@\"; else compdef _gpuloom gpuloom; "
         "fi\n";
}

// In single quotes fish gives a meaning to backslash and quote only.
std::string InFish(const std::string& text) {
  return "'" + Replaced(Replaced(FirstLine(text), "\\", "\\\\"), "'", "\\'") + "'";
}

// fish wants a line for each word, with a condition; __gpuloom_at tells whether the line is at a
// command.
std::string Fish(const std::vector<CommandEntry>& commands) {
  std::string text =
      "# fish completion of gpuloom, made by: gpuloom completion fish\n"
      "function __gpuloom_at\n"
      "    set -l at ''\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        switch \"$at $word\"\n"
      "            case '*--'\n"
      "                return 1\n"
      "            case '";
  text += Joined(Steps(commands), "' '") +
          "'\n"
          "                set at (string trim -- \"$at $word\")\n"
          "        end\n"
          "    end\n"
          "    test \"$at\" = \"$argv[1]\"\n"
          "end\n";
  for (const CommandEntry& command : commands) {
    const std::string begin = "complete -c gpuloom -n '__gpuloom_at \"" + command.path + "\"'";
    for (const std::string& name : command.subcommands) {
      text.append(begin).append(" -f -a ").append(name).append(" -d ");
      text.append(InFish(Find(commands, PathOf(command, name)).about)).append("\n");
    }
    for (const OptionEntry& one : command.positionals) {
      if (!one.choices.empty()) {
        text += begin + " -f -a '" + Joined(one.choices, " ") + "' -d " + InFish(one.about) + "\n";
      }
    }
    for (const OptionEntry& option : command.options) {
      text += begin;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      // -x: a value and no files; -r: a value, files among them.
      if (!option.choices.empty()) {
        text += " -x -a '" + Joined(option.choices, " ") + "'";
      } else if (!option.value.empty()) {
        text += " -r";
      }
      text += " -d " + InFish(option.about) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const std::vector<CommandEntry>& commands, const std::string& shell) {
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return Bash(commands);
}

}  // namespace gpuloom::run
