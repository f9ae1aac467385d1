// SPDX-License-Identifier: Apache-2.0
#include "agent/run/doctor/look.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "proto/channel/unique_fd.h"

namespace gpuloom::run {
namespace {

// "580.159.04" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Release Build …".
std::string DriverVersion(const std::string& text) {
  const size_t line_end = text.find('\n');
  for (size_t at = text.find_first_of("0123456789"); at < line_end && at != text.npos;
       at = text.find_first_of("0123456789", at)) {
    const size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    std::string word = text.substr(at, end - at);
    // Not the 64 of x86_64.
    if (word.find('.') != word.npos && (at == 0 || text[at - 1] == ' ')) return word;
    at = end;
  }
  return "unknown";
}

}  // namespace

std::string ReadText(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  struct stat status = {};
  // A FIFO or device would not end.
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  // Not by its size: files in /proc have none.
  std::string text(kMostBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string NvidiaDriver(const std::string& root) {
  const std::string text = ReadText(root + "/proc/driver/nvidia/version");
  return text.empty() ? "" : DriverVersion(text);
}

SocketState ProbeSocket(const std::string& folder, const std::string& name) {
  struct stat status = {};
  if (stat((folder + "/" + name).c_str(), &status) != 0) {
    return errno == EACCES ? SocketState::kClosed : SocketState::kMissing;
  }
  // EAGAIN, below, is a full backlog: somebody listens, but is busy.
  if (!S_ISSOCK(status.st_mode)) return SocketState::kDead;
  // An address has room for 107 bytes.
  const channel::UniqueFd at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string path = "/proc/self/fd/" + std::to_string(at.get()) + "/" + name;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return SocketState::kDead;
  path.copy(address.sun_path, path.size());
  // A scheduler's socket has another type, for which connect fails with EPROTOTYPE: a process listens there.
  const channel::UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EPROTOTYPE || errno == EAGAIN) {
    return SocketState::kListening;
  }
  return errno == EACCES ? SocketState::kClosed : SocketState::kDead;
}

}  // namespace gpuloom::run
