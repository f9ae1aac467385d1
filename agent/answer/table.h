// SPDX-License-Identifier: Apache-2.0
// Tables for people. Pure; safe from any thread. What comes from outside has been through OneLine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuloom {

// In a cell, of what is not known.
inline constexpr char kNotSaid[] = "-";

// The first row has the headings; all are equally long. Numbers are to the left too: kubectl's tables are so.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// Of UTF-8.
size_t Letters(std::string_view text);
// At most so many of them; a mark ("…") is the last of what was longer.
std::string CutToLetters(std::string_view text, size_t most);

// Rounded, as people read them: "1.5", "1.5GiB".
std::string Decimal(double number);
std::string RoundedSize(uint64_t bytes);

}  // namespace gpuloom
