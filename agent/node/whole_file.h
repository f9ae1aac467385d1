// SPDX-License-Identifier: Apache-2.0
// Files that are written whole or not at all: temporary file, fsync, rename, fsync of the folder. Whoever reads one sees the old
// content or the new, also after a crash of the machine. Safe from any thread; of two writers of one path the later wins.
#pragma once

#include <string>

namespace gpuloom {

// What went wrong with which file: errno, and the call, for the writer's own words.
struct FileFailure {
  std::string path;
  const char* call = "";
  int error = 0;
};

// `mode` of the new file. On false the old content is intact, unless it was the folder's fsync that failed.
[[nodiscard]] bool WriteWholeFile(const std::string& path, const std::string& content,
                                  unsigned mode, FileFailure* failure);

// Removes from the folder what writers have left there that were ended in the middle, and nothing of those that still
// write, in whatever process.
void RemoveUnfinishedFiles(const std::string& folder);

}  // namespace gpuloom
