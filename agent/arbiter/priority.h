// SPDX-License-Identifier: Apache-2.0
// The priority classes of the policy, the highest first. Each allocation has a class: a higher one
// goes first, a lower one runs in the gaps (docs/design/sharing-time.md). Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpuloom::arbiter {

enum class Priority : uint8_t { kHigh, kNormal, kLow };
inline constexpr size_t kPriorities = 3;
inline constexpr std::array<Priority, kPriorities> kAllPriorities = {
    Priority::kHigh, Priority::kNormal, Priority::kLow};

constexpr size_t Index(Priority priority) { return static_cast<size_t>(priority); }

}  // namespace gpuloom::arbiter
