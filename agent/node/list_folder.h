// SPDX-License-Identifier: Apache-2.0
// What lies in a folder, read at once: std::filesystem's iterators throw where reading fails half way, which nobody here
// catches. Safe from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace gpuloom {

// In no order. *error: why there may be more; no_such_file_or_directory among others.
std::vector<std::filesystem::path> ListFolder(const std::string& folder, std::error_code* error);

}  // namespace gpuloom
