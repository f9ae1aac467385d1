// SPDX-License-Identifier: Apache-2.0
// Where a file of the agent's state goes that is damaged, or that another release wrote: beside it, for whoever looks into that.
// What was set aside before stays, because the first shows best how it began. Safe from any thread for different names.
#pragma once

#include <string>

namespace gpuloom {

// Most that lie there of one name; of those that follow, the newest replaces the last.
inline constexpr int kMostSetAside = 8;

// Renames `path` to BASE.bad or, where that is taken, BASE.2.bad and so on. Returns the words for the log: where it is, and what
// became of another, or why it stays where it was.
std::string SetAside(const std::string& path, const std::string& base);

}  // namespace gpuloom
