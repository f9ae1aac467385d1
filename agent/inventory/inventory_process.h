// SPDX-License-Identifier: Apache-2.0
// Takes the inventory in a process of its own. As long as anything in a process has NVML open, as the watch for faults has, the
// library goes on with the GPUs that it found when it was first opened there: one that could not even be named then stays
// nameless until the process ends. And a broken driver hangs that process and not this one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu_list.h"

namespace gpuloom {

// A line of JSON, with its end.
std::string PrintInventory(const Inventory& inventory);

// Reads the last line of what a program said that printed an inventory; a driver may print before that. Fails with the line
// if it is none.
absl::StatusOr<Inventory> ReadInventory(std::string_view said);

// Runs the program, which prints an inventory, for kLookTimeoutSeconds at most. Any thread; it waits for the program.
inline constexpr int kLookTimeoutSeconds = 20;
absl::StatusOr<Inventory> RunForInventory(const std::vector<std::string>& arguments);

}  // namespace gpuloom
