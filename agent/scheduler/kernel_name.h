// SPDX-License-Identifier: Apache-2.0
// What the log and a tenant's state call the kernels that an executor reports. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/node/one_line.h"

namespace gpuloom::scheduler {

// What the neighbours of a kernel that cost them their executor are told.
inline constexpr char kKernelTooLong[] = "a kernel ran for longer than its policy lets it";

// `function_untrusted`: the first kernel's; empty: a graph, or unknown.
inline std::string NameOfKernels(const std::string& function_untrusted, uint32_t launches) {
  constexpr size_t kLongestName = 200;
  const std::string name = OneLine(function_untrusted, kLongestName);
  if (launches > 1) {
    return "one of " + std::to_string(launches) + " kernels that were at the device" +
           (name.empty() ? "" : ", from " + name + " on,");
  }
  return name.empty() ? "a graph or a kernel without a name" : "kernel " + name;
}

}  // namespace gpuloom::scheduler
