// SPDX-License-Identifier: Apache-2.0
// Tables for people. Pure; safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::run {

// The first row has the headings. Numbers are to the left too: kubectl's tables are so.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace gpuloom::run
