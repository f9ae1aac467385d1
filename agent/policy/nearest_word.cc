// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/nearest_word.h"

#include <algorithm>
#include <vector>

namespace gpuloom {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Levenshtein's, with one row at a time; upper and lower case are the same letter.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      // A letter removed, one added, one replaced.
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  size_t least = 0;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (!nearest.empty() && distance >= least) continue;
    nearest = candidate;
    least = distance;
  }
  // One slip is forgiven in the shortest word, too.
  return least <= std::max<size_t>(1, nearest.size() / 3) ? nearest : std::string_view();
}

std::string ListWords(std::span<const std::string_view> words) {
  std::string list;
  for (const std::string_view word : words) {
    list += list.empty() ? "" : ", ";
    list += word;
  }
  return list;
}

}  // namespace gpuloom
