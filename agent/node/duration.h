// SPDX-License-Identifier: Apache-2.0
// Parses durations as people write them on command lines: "60s", "250ms", "2m", "0s". Pure; safe from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace gpuloom {

// nullopt for anything else. A number without a unit is refused, because seconds and milliseconds differ too much to
// guess. At most a day: a longer time is taken for a wrong unit.
[[nodiscard]] std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

}  // namespace gpuloom
