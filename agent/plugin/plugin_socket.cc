// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/plugin_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "agent/node/list_folder.h"
#include "agent/node/random_hex.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

// Invalid, with errno, when no process listens.
channel::UniqueFd Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return {};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Non-blocking: a full backlog means that a process listens.
  channel::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return {};
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

}  // namespace

std::string MakePluginSocketName() { return "gpuloom-" + RandomHex(4) + ".sock"; }

std::vector<std::string> ListPluginSockets(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  // A directory that cannot be read counts as empty; making a socket there then fails with the reason.
  for (const fs::path& entry : ListFolder(directory, &error)) {
    const std::string name = entry.filename();
    if (name.starts_with("gpuloom") && name.ends_with(".sock")) paths.push_back(entry);
  }
  return paths;
}

void RemoveDeadPluginSockets(const std::string& directory) {
  for (const std::string& path : ListPluginSockets(directory)) {
    // No other error says that nobody listens. An agent that has bound its socket and does not
    // listen yet looks dead, too: it finds its socket gone and makes it anew (Registrar::Serve).
    if (!Connect(path).valid() && errno == ECONNREFUSED) unlink(path.c_str());
  }
}

bool IsServedNearby(const std::string& socket_path) {
  const channel::UniqueFd fd = Connect(socket_path);
  ucred peer = {};
  socklen_t size = sizeof(peer);
  // The process id is 0 where it has none in this process's namespace.
  return fd.valid() && getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.pid != 0;
}

}  // namespace gpuloom
