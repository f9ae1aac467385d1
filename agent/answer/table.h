// SPDX-License-Identifier: Apache-2.0
// Tables for people. Pure; safe from any thread. Text from outside has been through OneLine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuloom {

// The content of a cell whose value is unknown.
inline constexpr char kNotSaid[] = "-";

// The first row has the headings; all rows have equally many cells. Numbers are left-aligned, too, as in kubectl's
// tables.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// How many characters the UTF-8 text has.
size_t Letters(std::string_view text);
// Cuts the text to at most `most` characters, the last of which is then "…".
std::string CutToLetters(std::string_view text, size_t most);

// Rounded, as people read them: "1.5", "1.5GiB".
std::string Decimal(double number);
std::string RoundedSize(uint64_t bytes);

}  // namespace gpuloom
