// SPDX-License-Identifier: Apache-2.0
// gpuloom-simulate: one process without neighbours. Reads its arguments, simulates, prints, ends;
// opens no file, no socket and no device.
#include <cstdio>
#include <string>
#include <vector>

#include "agent/simulator/cluster.h"
#include "agent/simulator/command_line.h"

int main(int argc, char** argv) {
  gpuloom::simulator::Arguments arguments;
  std::string error;
  if (!gpuloom::simulator::Parse(std::vector<std::string>(argv + 1, argv + argc), &arguments,
                                 &error)) {
    std::fprintf(stderr, "gpuloom-simulate: %s\n", error.c_str());
    return 2;
  }
  const std::string text =
      arguments.help ? gpuloom::simulator::kUsage : gpuloom::simulator::Report(arguments);
  std::fputs(text.c_str(), stdout);
  return 0;
}
