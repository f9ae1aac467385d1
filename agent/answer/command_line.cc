// SPDX-License-Identifier: Apache-2.0
#include "agent/answer/command_line.h"

#include <CLI/CLI.hpp>

namespace gpuloom {

void AddOutputOption(CLI::App* command, std::function<void(Format)> take) {
  command
      ->add_option_function<std::string>(
          "-o,--output",
          // The check below has seen to it that the name is one.
          [take = std::move(take)](const std::string& name) { take(*FormatNamed(name)); },
          "for people, or the same as a document in json or yaml (table)")
      ->check(CLI::IsMember({"table", "json", "yaml"}));
}

}  // namespace gpuloom
