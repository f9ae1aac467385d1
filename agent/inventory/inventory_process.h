// SPDX-License-Identifier: Apache-2.0
// Takes the inventory in a process of its own. As long as anything in a process has NVML open, as the watch for faults
// has, the library keeps the list of GPUs that it made when it was first opened there: a GPU whose UUID could not be
// read then has none until the process ends. And a broken driver hangs that process and not this one.
#pragma once

#include <chrono>
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

// Runs the program, which prints an inventory, for `patience` at most. Any thread; it waits for the program.
inline constexpr int kLookTimeoutSeconds = 20;
absl::StatusOr<Inventory> RunForInventory(
    const std::vector<std::string>& arguments,
    std::chrono::seconds patience = std::chrono::seconds(kLookTimeoutSeconds));

// For who has none yet: where the program prints no inventory, one of a node whose driver has said nothing, for that reason, as
// gpu_list.h makes it of what the state and the hardware know.
absl::StatusOr<Inventory> RunForFirstInventory(
    const std::vector<std::string>& arguments, const InventorySources& sources,
    std::chrono::seconds patience = std::chrono::seconds(kLookTimeoutSeconds));

}  // namespace gpuloom
