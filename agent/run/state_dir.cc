// SPDX-License-Identifier: Apache-2.0
#include "agent/run/state_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/control/messages.h"

namespace gpuloom::run {

std::string DefaultStateDir(const std::string& device, const std::string& service) {
  std::string of_service = service + "/" + device;
  // Connecting to a socket needs the right to write to it.
  if (access((of_service + "/" + control::kControlSocketName).c_str(), W_OK) == 0) {
    return of_service;
  }
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  struct stat status;
  // After su or sudo the variable may still name another user's folder.
  if (runtime != nullptr && runtime[0] == '/' && stat(runtime, &status) == 0 &&
      status.st_uid == geteuid() && access(runtime, W_OK) == 0) {
    return std::string(runtime) + "/gpuloom/" + device;
  }
  return "/tmp/gpuloom-" + std::to_string(geteuid()) + "/" + device;
}

bool MakeStateDir(std::string* path, std::string* error) {
  for (size_t slash = path->find('/', 1);; slash = path->find('/', slash + 1)) {
    const std::string part = path->substr(0, slash);
    // A part that exists may also be refused with the last two; whether the whole is there,
    // realpath tells.
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES) {
      *error = "cannot make the folder " + part + ": " + strerror(errno);
      return false;
    }
    if (slash == std::string::npos) break;
  }
  char* absolute = realpath(path->c_str(), nullptr);
  if (absolute == nullptr) {
    *error = "cannot make the folder " + *path + ": " + strerror(errno);
    return false;
  }
  *path = absolute;
  free(absolute);
  // The folder and the one above it: who owns that one could put another in its place.
  for (const std::string& folder : {*path, path->substr(0, path->rfind('/'))}) {
    struct stat status;
    const bool ours = lstat(folder.empty() ? "/" : folder.c_str(), &status) == 0 &&
                      S_ISDIR(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0);
    // With the sticky bit, as /tmp has it, others cannot rename or remove what is ours.
    const bool open_to_others = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
    if (!ours || open_to_others) {
      *error = "the folder " + folder +
               " belongs to another user or is open to all: remove it, or name " +
               "another with --state-dir";
      return false;
    }
  }
  return true;
}

}  // namespace gpuloom::run
