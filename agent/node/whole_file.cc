// SPDX-License-Identifier: Apache-2.0
#include "agent/node/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "agent/node/list_folder.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

constexpr char kUnfinished[] = ".new";

// Makes and locks a file of another name beside `path`: by the lock RemoveUnfinishedFiles sees that it is written.
// Invalid, with errno, if that fails.
channel::UniqueFd MakeTemporary(const std::string& path, std::string* name) {
  for (;;) {
    // A name of its own: an agent that is being replaced may write the same file.
    *name = path + ".XXXXXX" + kUnfinished;
    channel::UniqueFd fd(mkostemps(name->data(), sizeof(kUnfinished) - 1, O_CLOEXEC));
    if (!fd.valid()) return fd;
    struct stat info = {};
    if (flock(fd.get(), LOCK_EX) != 0 || fstat(fd.get(), &info) != 0) {
      const int error = errno;
      unlink(name->c_str());
      fd.Reset();
      errno = error;
      return fd;
    }
    // Otherwise it was removed as a leftover before it was locked, and another name is tried.
    if (info.st_nlink != 0) return fd;
  }
}

}  // namespace

bool WriteWholeFile(const std::string& path, const std::string& content, unsigned mode,
                    FileFailure* failure) {
  const auto fail = [failure](const std::string& at, const char* call) {
    *failure = {at, call, errno};
    return false;
  };
  std::string temporary;
  const channel::UniqueFd fd = MakeTemporary(path, &temporary);
  if (!fd.valid()) return fail(path, "open");
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const auto give_up = [&](const char* call, const std::string& at) {
    (void)fail(at, call);
    unlink(temporary.c_str());
    return false;
  };
  // Made for its owner only; containers' users must be able to read what is mounted.
  if (fchmod(fd.get(), mode) != 0) return give_up("fchmod", path);
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = write(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return give_up("write", path);
    done += static_cast<size_t>(n);
  }
  // Before the rename: after a crash the name must not lead to a file without its content.
  if (fsync(fd.get()) != 0) return give_up("fsync", path);
  // Opened before the rename: after it, only the disk may fail.
  const channel::UniqueFd parent(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid()) return give_up("open", folder);
  if (rename(temporary.c_str(), path.c_str()) != 0) return give_up("rename", path);
  // The rename itself lasts only once the folder is on the disk.
  if (fsync(parent.get()) != 0) return fail(folder, "fsync");
  return true;
}

bool ReadSmallFile(const std::string& path, size_t most_bytes, std::string* text,
                   FileFailure* failure) {
  const channel::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.valid()) {
    *failure = {path, "open", errno};
    return false;
  }
  text->resize(most_bytes);
  size_t done = 0;
  while (done < most_bytes) {
    const ssize_t n = read(fd.get(), text->data() + done, most_bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      *failure = {path, "read", errno};
      return false;
    }
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text->resize(done);
  return true;
}

void RemoveUnfinishedFiles(const std::string& folder) {
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, &error)) {
    if (path.extension() != kUnfinished) continue;
    const channel::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace gpuloom
