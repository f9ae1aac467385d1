// SPDX-License-Identifier: Apache-2.0
// A folder on a file system that has become read-only, for tests.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

namespace gpuloom {

// Makes the folder read-only, even for root, in this process only, which must be a child of the test's with one thread.
// Returns false if this machine lets no process have mounts of its own.
[[nodiscard]] inline bool MakeReadOnly(const std::string& folder) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  const char* path = folder.c_str();
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(path, path, nullptr, MS_BIND, nullptr) == 0 &&
         mount(path, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

}  // namespace gpuloom
