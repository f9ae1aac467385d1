// SPDX-License-Identifier: Apache-2.0
#include "agent/node/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace gpuloom {
namespace {

// Who only looks (IsLocked) holds the lock for microseconds, unless the machine has no processor for it just then.
constexpr int kTries = 50;
constexpr timespec kBetweenTries = {.tv_sec = 0, .tv_nsec = 2'000'000};

// Whether it was taken; otherwise errno.
bool Take(int fd) {
  for (int i = 0; i < kTries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
    nanosleep(&kBetweenTries, nullptr);
  }
  errno = EWOULDBLOCK;
  return false;
}

// The process id that the holder wrote. 0: it has not written it yet, or could not.
pid_t Holder(int fd) {
  char text[32] = {};
  const ssize_t bytes = pread(fd, text, sizeof(text), 0);
  pid_t pid = 0;
  if (bytes > 0) std::from_chars(text, text + bytes, pid);
  return pid;
}

// For reading: flock needs no more, and the folder may be mounted read-only for this process.
channel::UniqueFd OpenToCheck(const std::string& path) {
  return channel::UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

// Shared: two that ask at the same time do not take each other for the holder.
bool LockShared(int fd) { return flock(fd, LOCK_SH | LOCK_NB) == 0; }

}  // namespace

LockFile TakeLock(const std::string& path, const std::string& line) {
  LockFile lock;
  channel::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    lock.error = "cannot open the lock file " + path + ": " + strerror(errno);
    return lock;
  }
  if (!Take(fd.get())) {
    lock.is_held_by_another = errno == EWOULDBLOCK;
    lock.error = "cannot lock " + path + ": " + strerror(errno);
    if (lock.is_held_by_another) lock.holder = Holder(fd.get());
    return lock;
  }
  const std::string text = std::to_string(getpid()) + "\n" + (line.empty() ? "" : line + "\n");
  // The lock is what counts; what is written in it only helps people.
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    lock.error = "cannot write my process id to " + path + ": " + strerror(errno);
  }
  lock.fd = std::move(fd);
  return lock;
}

std::string LineOfHolder(const std::string& path) {
  const channel::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char text[256];
  const ssize_t bytes = fd.valid() ? pread(fd.get(), text, sizeof(text), 0) : 0;
  const std::string_view read(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  // The first line is the process id.
  const size_t begin = read.find('\n');
  if (begin == read.npos) return {};
  const std::string_view rest = read.substr(begin + 1);
  return std::string(rest.substr(0, rest.find('\n')));
}

bool IsLocked(const std::string& path) {
  const channel::UniqueFd fd = OpenToCheck(path);
  return fd.valid() && !LockShared(fd.get()) && errno == EWOULDBLOCK;
}

bool IsCertainlyUnlocked(const std::string& path) {
  const channel::UniqueFd fd = OpenToCheck(path);
  if (!fd.valid()) return errno == ENOENT;
  return LockShared(fd.get());
}

}  // namespace gpuloom
