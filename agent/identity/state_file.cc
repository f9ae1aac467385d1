// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/cat.h"
#include "agent/node/whole_file.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

// The libraries that containers get have some megabytes, records and policies far less.
constexpr off_t kMaxFileBytes = 256 << 20;

absl::Status Failed(const std::string& path, const char* what, int error) {
  const std::string message = Cat("state: ", path, ": ", what, ": ", strerror(error));
  // What is full or over its quota is the disk, which the operator can mend.
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(
        Cat(message, "; free space under the agent's state directory (df -h, df -i)"));
  }
  return absl::InternalError(message);
}

}  // namespace

absl::Status WriteStateFile(const std::string& path, const std::string& content, unsigned mode) {
  FileFailure failure;
  if (WriteWholeFile(path, content, mode, &failure)) return absl::OkStatus();
  return Failed(failure.path, failure.call, failure.error);
}

absl::StatusOr<std::string> ReadStateFile(const std::string& path) {
  // Opening a pipe must not wait for a writer.
  const channel::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ENOENT) return absl::NotFoundError(Cat("state: ", path, ": no such file"));
    return Failed(path, "open", errno);
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return Failed(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(Cat("state: ", path, ": is not a file"));
  if (info.st_size > kMaxFileBytes) {
    return absl::DataLossError(Cat("state: ", path, ": is larger than ", kMaxFileBytes, " bytes"));
  }
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "read", errno);
    if (n == 0) return content;
    // A file that grows while it is read, or one in /proc, has another size than fstat says.
    if (static_cast<off_t>(content.size()) > kMaxFileBytes) return Failed(path, "read", EFBIG);
    content.append(buffer, static_cast<size_t>(n));
  }
}

absl::Status MakeStateDirectory(const std::string& path, unsigned mode) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return Failed(path, "mkdir", errno);
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return Failed(path, "stat", errno);
  if (!S_ISDIR(info.st_mode)) return Failed(path, "mkdir", ENOTDIR);
  // The umask may have taken bits away, or the directory was there with others.
  if ((info.st_mode & 07777) != mode && chmod(path.c_str(), mode) != 0)
    return Failed(path, "chmod", errno);
  return absl::OkStatus();
}

}  // namespace gpuloom
