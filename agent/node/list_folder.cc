// SPDX-License-Identifier: Apache-2.0
#include "agent/node/list_folder.h"

namespace gpuloom {

std::vector<std::filesystem::path> ListFolder(const std::string& folder, std::error_code* error) {
  std::vector<std::filesystem::path> paths;
  error->clear();
  for (auto entry = std::filesystem::directory_iterator(folder, *error);
       !*error && entry != std::filesystem::directory_iterator(); entry.increment(*error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

}  // namespace gpuloom
