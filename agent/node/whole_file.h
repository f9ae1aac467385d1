// SPDX-License-Identifier: Apache-2.0
// Files that are written whole or not at all: temporary file, fsync, rename, fsync of the folder. Whoever reads one
// sees the old content or the new, also after a crash of the machine. Safe from any thread; of two writers of one
// path the later wins.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// Which call failed on which file, and its errno; the caller words the message.
struct FileFailure {
  std::string path;
  const char* call = "";
  int error = 0;
};

// `mode` of the new file. On false the old content is intact, unless it was the folder's fsync that failed.
[[nodiscard]] bool WriteWholeFile(const std::string& path, const std::string& content,
                                  unsigned mode, FileFailure* failure);

// The first `most_bytes` of a file, whatever lies at the path: neither a FIFO nor a link there blocks the reader or leads it
// elsewhere.
[[nodiscard]] bool ReadSmallFile(const std::string& path, size_t most_bytes, std::string* text,
                                 FileFailure* failure);

// Removes from the folder the temporary files of writers that were killed while writing, and none of writers that are
// still alive, in whatever process.
void RemoveUnfinishedFiles(const std::string& folder);

}  // namespace gpuloom
