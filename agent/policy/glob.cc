// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/glob.h"

#include <algorithm>

namespace gpuloom {

bool GlobMatches(std::string_view pattern, std::string_view text) {
  // The usual two-finger match: on a mismatch the last * swallows one character more.
  size_t p = 0, t = 0, star = pattern.npos, swallowed = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      swallowed = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++swallowed;
    } else {
      return false;
    }
  }
  // The text is used up; only a * matches nothing.
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Specificity SpecificityOf(std::string_view pattern) {
  const size_t before = pattern.find_first_of("*?");
  const auto literals = static_cast<size_t>(
      std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; }));
  return {before == pattern.npos, std::min(before, pattern.size()), literals};
}

}  // namespace gpuloom
