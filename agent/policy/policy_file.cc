// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/node/sealed_text.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

// A ConfigMap holds at most 1 MiB.
constexpr size_t kMaxPolicyBytes = size_t{1} << 20;

}  // namespace

std::optional<std::string> ReadPolicyFile(const std::string& path, PolicySource source,
                                          std::string* error) {
  const auto fail = [&](const std::string& reason) {
    *error = "policy " + path + ": " + reason;
    return std::nullopt;
  };
  const bool is_file = source != PolicySource::kAnything;
  const size_t max_bytes = kMaxPolicyBytes + (source == PolicySource::kKept ? kMaxSealBytes : 0);
  // O_NONBLOCK: opening a FIFO would wait for its other end, before fstat can tell what it is.
  const channel::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | (is_file ? O_NONBLOCK : 0)));
  if (!fd.valid()) return fail(strerror(errno));
  struct stat info = {};
  if (is_file && (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))) {
    return fail("is not a file");
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(strerror(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    // While it is read: a pipe or a device has no size to ask for.
    if (text.size() > max_bytes) return fail("larger than 1MiB");
  }
}

}  // namespace gpuloom
