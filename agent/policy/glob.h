// SPDX-License-Identifier: Apache-2.0
// Patterns of names: * matches any run of characters, ? one. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

namespace gpuloom {

bool GlobMatches(std::string_view pattern, std::string_view text);

// Larger is more specific: a name before globs, among globs the longer text before the first * or ?, then more other
// characters.
using Specificity = std::tuple<bool, size_t, size_t>;
Specificity SpecificityOf(std::string_view pattern);

}  // namespace gpuloom
