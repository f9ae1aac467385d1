// SPDX-License-Identifier: Apache-2.0
#include "agent/node/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace gpuloom {
namespace {

// What the holder wrote. 0: it has not yet, or could not.
pid_t Holder(int fd) {
  char text[32] = {};
  const ssize_t bytes = pread(fd, text, sizeof(text), 0);
  pid_t pid = 0;
  if (bytes > 0) std::from_chars(text, text + bytes, pid);
  return pid;
}

}  // namespace

LockFile TakeLock(const std::string& path) {
  LockFile lock;
  channel::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    lock.error = "cannot open the lock file " + path + ": " + strerror(errno);
    return lock;
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    lock.is_held_by_another = errno == EWOULDBLOCK;
    lock.error = "cannot lock " + path + ": " + strerror(errno);
    if (lock.is_held_by_another) lock.holder = Holder(fd.get());
    return lock;
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    lock.error = "cannot write my process id to " + path + ": " + strerror(errno);
  }
  lock.fd = std::move(fd);
  return lock;
}

bool IsLocked(const std::string& path) {
  const channel::UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace gpuloom
