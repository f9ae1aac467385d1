// SPDX-License-Identifier: Apache-2.0
#include "agent/node/layout.h"

#include <unistd.h>

#include <filesystem>

namespace gpuloom {

Layout LayoutOf(const std::string& program) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(program).parent_path();
  const auto from_here = [&folder](const char* path) {
    return (folder / path).lexically_normal().string();
  };
  // Where the scheduler lies shows which of the two layouts this is. The macros come from the build.
  Layout installed = {from_here(GPULOOM_HELPERS_FROM_BIN), from_here(GPULOOM_LIBRARIES_FROM_BIN)};
  if (access(installed.scheduler().c_str(), F_OK) == 0) return installed;
  return {folder.string(), (folder.parent_path() / "lib").string()};
}

}  // namespace gpuloom
