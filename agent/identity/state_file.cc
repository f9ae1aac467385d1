// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/state_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "agent/cat.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

// The libraries that containers get have some megabytes, records and policies far less.
constexpr off_t kMaxFileBytes = 256 << 20;

absl::Status Failed(const std::string& path, const char* what, int error) {
  const std::string message = Cat("state: ", path, ": ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(
        Cat(message, "; free space under the agent's state directory (df -h, df -i)"));
  }
  return absl::InternalError(message);
}

constexpr char kUnfinished[] = ".new";

// Makes and locks a file of another name beside `path`: by the lock RemoveUnfinishedFiles sees that it is written. Invalid,
// with errno, if that fails.
channel::UniqueFd MakeTemporary(const std::string& path, std::string* name) {
  for (;;) {
    // A name of its own: an agent that is being replaced may write the same file.
    *name = path + ".XXXXXX" + kUnfinished;
    channel::UniqueFd fd(mkostemps(name->data(), sizeof(kUnfinished) - 1, O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() || flock(fd.get(), LOCK_EX) != 0 || fstat(fd.get(), &info) != 0) {
      return channel::UniqueFd();
    }
    // Taken for left behind, before it was locked.
    if (info.st_nlink != 0) return fd;
  }
}

}  // namespace

absl::Status WriteStateFile(const std::string& path, const std::string& content, unsigned mode) {
  std::string temporary;
  const channel::UniqueFd fd = MakeTemporary(path, &temporary);
  if (!fd.valid()) return Failed(path, "open", errno);
  const auto give_up = [&](const char* what, int error) {
    unlink(temporary.c_str());
    return Failed(path, what, error);
  };
  // Made for its owner only; containers' users must be able to read what is mounted.
  if (fchmod(fd.get(), mode) != 0) return give_up("fchmod", errno);
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = write(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return give_up("write", errno);
    done += static_cast<size_t>(n);
  }
  if (fsync(fd.get()) != 0) return give_up("fsync", errno);
  if (rename(temporary.c_str(), path.c_str()) != 0) return give_up("rename", errno);
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  const channel::UniqueFd parent(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid() || fsync(parent.get()) != 0) return Failed(directory, "fsync", errno);
  return absl::OkStatus();
}

void RemoveUnfinishedFiles(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != kUnfinished) continue;
    const channel::UniqueFd fd(
        open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
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
  if (!S_ISREG(info.st_mode)) return absl::InternalError(Cat("state: ", path, ": is not a file"));
  if (info.st_size > kMaxFileBytes) {
    return absl::InternalError(Cat("state: ", path, ": is larger than ", kMaxFileBytes, " bytes"));
  }
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "read", errno);
    if (n == 0) return content;
    if (static_cast<off_t>(content.size()) > kMaxFileBytes) return Failed(path, "read", EFBIG);
    content.append(buffer, static_cast<size_t>(n));
  }
}

absl::Status MakeStateDirectory(const std::string& path, unsigned mode) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return Failed(path, "mkdir", errno);
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return Failed(path, "stat", errno);
  if (!S_ISDIR(info.st_mode)) return Failed(path, "mkdir", ENOTDIR);
  if ((info.st_mode & 07777) != mode && chmod(path.c_str(), mode) != 0)
    return Failed(path, "chmod", errno);
  return absl::OkStatus();
}

}  // namespace gpuloom
