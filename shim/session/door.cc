// SPDX-License-Identifier: Apache-2.0
#include "shim/session/door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "proto/channel/socket.h"
#include "shim/process/log.h"

namespace gpuloom {
namespace {

// The kernel's number of this process's pid namespace; 0 where /proc does not tell.
uint64_t PidNamespace() {
  char text[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", text, sizeof(text) - 1);
  unsigned long long number = 0;  // what sscanf fills
  return size > 0 && sscanf(text, "pid:[%llu]", &number) == 1 ? number : 0;
}

}  // namespace

channel::UniqueFd ConnectToScheduler(FailureLog* failures, time_t answer_timeout_s,
                                     char (&path)[kDoorPathBytes]) {
  // `gpuloom run` sets the variable; in a pod the socket is where it was mounted. The variable
  // grants nothing: who the process is follows from the socket that it reaches.
  const char* directory = getenv(wire::kSocketDirVariable);
  if (directory == nullptr || directory[0] == '\0') directory = wire::kContainerSocketDir;
  const int length = snprintf(path, sizeof(path), "%s/%s", directory, wire::kSocketName);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) {
    failures->Add("%s is too long a path for a socket's directory", wire::kSocketDirVariable);
    return {};
  }
  channel::UniqueFd connection = channel::ConnectTo(path);
  if (!connection.valid()) {
    failures->Add("cannot connect to %s (%s); is this a pod that asked for gpuloom.io/gpu?", path,
                  strerror(errno));
    return connection;
  }
  // A scheduler that hangs must not hang every program of the node. If the option cannot be set,
  // the wait is merely unlimited.
  const timeval timeout = {answer_timeout_s, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  return connection;
}

// The scheduler takes identity from the socket. The process id and its namespace are for reports,
// in which a process finds the others of its container.
wire::Hello MakeHello(uint32_t magic) {
  return {magic, wire::kWireMajor, wire::kNeededMinor, getpid(), 0, PidNamespace(), {}};
}

// An unknown word leaves the level as it is.
void ReadLogLevel() {
  const char* text = getenv("GPULOOM_LOG");
  if (text == nullptr) return;
  if (strcasecmp(text, "off") == 0) SetLogLevel(LogLevel::kOff);
  if (strcasecmp(text, "error") == 0) SetLogLevel(LogLevel::kError);
  if (strcasecmp(text, "warn") == 0) SetLogLevel(LogLevel::kWarn);
  if (strcasecmp(text, "info") == 0) SetLogLevel(LogLevel::kInfo);
}

void WriteUuid(const uint8_t (&uuid)[16], char (&text)[kUuidTextBytes]) {
  char* out = text + snprintf(text, sizeof(text), "GPU-");
  for (int i = 0; i < 16; ++i) {
    // The groups of a UUID: 8-4-4-4-12 digits.
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    out += snprintf(out, 3, "%02x", uuid[i]);
  }
}

}  // namespace gpuloom
