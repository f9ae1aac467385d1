// SPDX-License-Identifier: Apache-2.0
#include "agent/run/table.h"

#include <algorithm>

namespace gpuloom::run {

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 3, ' ');
    }
    text += "\n";
  }
  return text;
}

}  // namespace gpuloom::run
