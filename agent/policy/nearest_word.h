// SPDX-License-Identifier: Apache-2.0
// Suggests what a mistyped word was meant to be. Pure functions, safe from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gpuloom {

// The nearest of the known words, if at most a third of its letters differ (more makes it another word); else empty.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known);

// "high, normal, low"
std::string ListWords(std::span<const std::string_view> words);

}  // namespace gpuloom
