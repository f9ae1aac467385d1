// SPDX-License-Identifier: Apache-2.0
#include "agent/node/duration.h"

#include <charconv>

namespace gpuloom {

std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // A day, in milliseconds. What is below it cannot overflow in any unit.
  constexpr int64_t kLargest = 24 * 3600 * 1000;
  if (error != std::errc() || number < 0 || number > kLargest) return std::nullopt;
  const std::string unit(end, text.data() + text.size());
  if (unit == "ms") return std::chrono::milliseconds(number);
  if (unit == "s" && number <= kLargest / 1000) return std::chrono::seconds(number);
  if (unit == "m" && number <= kLargest / 60'000) return std::chrono::minutes(number);
  return std::nullopt;
}

}  // namespace gpuloom
