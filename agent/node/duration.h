// SPDX-License-Identifier: Apache-2.0
// Times as people write them on command lines: "60s", "250ms", "2m", "0s". Pure, safe from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace gpuloom {

// nullopt for anything else; a number without a unit is refused, because seconds and milliseconds differ too much to be
// guessed. At most a day: longer ones are slips of the unit.
[[nodiscard]] std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

}  // namespace gpuloom
