// SPDX-License-Identifier: Apache-2.0
// What one GPU has to give, from the operator's flags. Pure; safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "agent/policy/policy.h"

namespace gpuloom {

// `reserve`: "auto" or a size. nullopt with a message that names --reserve if it is neither.
[[nodiscard]] std::optional<Capacity> MakeCapacity(const std::string& gpu, uint64_t total_bytes,
                                                   int slots, const std::string& reserve,
                                                   std::string* error);

// Why the GPU can have no slots: it is too small for the reserve. Empty: it can.
std::string NothingLeft(const Capacity& capacity);

}  // namespace gpuloom
