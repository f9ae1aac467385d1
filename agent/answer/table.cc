// SPDX-License-Identifier: Apache-2.0
#include "agent/answer/table.h"

#include <algorithm>
#include <cstdio>

namespace gpuloom {
namespace {

// Blanks between columns.
constexpr size_t kGap = 3;

// All bytes of UTF-8 but those that continue a character.
bool BeginsLetter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  // The widest cell of each column, headings included.
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Letters(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      // No blanks at the end of a line.
      if (i + 1 < row.size()) text.append(widths[i] - Letters(row[i]) + kGap, ' ');
    }
    text += "\n";
  }
  return text;
}

size_t Letters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, BeginsLetter));
}

std::string CutToLetters(std::string_view text, size_t most) {
  if (Letters(text) <= most) return std::string(text);
  if (most == 0) return {};
  size_t end = 0;
  for (size_t letters = 0; end < text.size(); ++end) {
    // One letter less than there is room for: the mark takes it.
    if (BeginsLetter(text[end]) && letters++ == most - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string Decimal(double number) {
  char text[64];
  snprintf(text, sizeof(text), "%.1f", number);
  return text;
}

std::string RoundedSize(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? Decimal(mib) + "MiB" : Decimal(mib / 1024) + "GiB";
}

}  // namespace gpuloom
