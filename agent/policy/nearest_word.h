// SPDX-License-Identifier: Apache-2.0
// What somebody who mistyped a word may have meant. Pure functions, safe from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gpuloom {

// The nearest of the known words when a third of its letters or less differ, more is another word; else empty.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known);

// "high, normal, low"
std::string ListWords(std::span<const std::string_view> words);

}  // namespace gpuloom
