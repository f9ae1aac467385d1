// SPDX-License-Identifier: Apache-2.0
// The command line of gpuloom-simulate. Pure; a wrong argument gives a message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/simulator/gpu.h"

namespace gpuloom::simulator {

struct Arguments {
  std::vector<std::string> spaces;  // names of namespaces, by their number in `gpu`
  std::vector<std::string> domains;
  // with the named tenants and their namespaces; `gpus` says how many GPUs are like it
  GpuSpec gpu = {.spaces = {}};
  // instead of named ones: this many of all kinds, spread over the GPUs
  uint32_t random_tenants = 0;
  uint32_t gpus = 1;
  uint64_t span_ns = 1'000'000'000;
  uint64_t seed = 1;
  bool help = false;
};

extern const char kUsage[];

// Adds what one --tenant describes.
[[nodiscard]] bool AddTenant(const std::string& text, Arguments* arguments, std::string* error);

// False when an argument is wrong; `error` says which and why.
[[nodiscard]] bool Parse(const std::vector<std::string>& words, Arguments* arguments,
                         std::string* error);

}  // namespace gpuloom::simulator
