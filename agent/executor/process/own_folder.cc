// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/own_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace gpuloom::executor {
namespace {

using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

// Never follows a link: the folder's content is what an executor, perhaps a taken-over one, has
// left there.
Listing List(int at, const char* name) {
  const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* listing = fd < 0 ? nullptr : fdopendir(fd);
  if (listing == nullptr && fd >= 0) close(fd);
  return {listing, closedir};
}

bool IsSelfOrParent(const char* name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

bool IsFolder(int at, const char* name) {
  struct stat status;
  return fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// Moves the contents of a folder up, next to the folder, so that no depth is too deep for
// descriptors or the stack; then removes the folder.
void Flatten(int top, const char* name, uint64_t* last_name, bool* has_moved) {
  fchmodat(top, name, 0700, 0);
  const Listing folder = List(top, name);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    if (IsSelfOrParent(entry->d_name)) continue;
    const int at = dirfd(folder.get());
    if (!IsFolder(at, entry->d_name)) {
      unlinkat(at, entry->d_name, 0);
      continue;
    }
    // A folder that moves is written to, by its "..".
    fchmodat(at, entry->d_name, 0700, 0);
    const std::string new_name = ".moved-" + std::to_string(++*last_name);
    if (renameat(at, entry->d_name, top, new_name.c_str()) == 0) *has_moved = true;
  }
  unlinkat(top, name, AT_REMOVEDIR);
}

}  // namespace

void UseFolder(const std::string& folder) {
  if (folder.empty()) {
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    return;
  }
  setenv("HOME", folder.c_str(), 1);
  setenv("TMPDIR", folder.c_str(), 1);
  setenv("CUDA_CACHE_PATH", (folder + "/cache").c_str(), 1);
}

// Single failures are not looked at: if anything is left, removing the folder itself fails and says
// so.
bool RemoveFolder(const std::string& folder, std::string* error) {
  uint64_t last_name = 0;
  // What was moved up is removed in a later round.
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    chmod(folder.c_str(), 0700);
    const Listing top = List(AT_FDCWD, folder.c_str());
    if (top == nullptr) break;
    while (const dirent* entry = readdir(top.get())) {
      if (IsSelfOrParent(entry->d_name)) continue;
      if (IsFolder(dirfd(top.get()), entry->d_name)) {
        Flatten(dirfd(top.get()), entry->d_name, &last_name, &has_moved);
      } else {
        unlinkat(dirfd(top.get()), entry->d_name, 0);
      }
    }
  }
  if (rmdir(folder.c_str()) == 0 || errno == ENOENT) return true;
  *error = "cannot remove " + folder + ": " + strerror(errno);
  return false;
}

}  // namespace gpuloom::executor
