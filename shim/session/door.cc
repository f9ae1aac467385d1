// SPDX-License-Identifier: Apache-2.0
#include "shim/session/door.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "shim/process/log.h"

namespace gpuloom {
namespace {

// The kernel's number of this process's pid namespace; 0 where /proc does not tell.
uint64_t PidNamespace() {
  char text[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", text, sizeof(text) - 1);
  unsigned long long number = 0;  // NOLINT(google-runtime-int): what sscanf fills
  return size > 0 && sscanf(text, "pid:[%llu]", &number) == 1 ? number : 0;
}

}  // namespace

bool FindDoor(char (&path)[kDoorPathBytes]) {
  const char* directory = getenv(wire::kSocketDirVariable);
  if (directory == nullptr || directory[0] == '\0') directory = wire::kContainerSocketDir;
  const int length = snprintf(path, sizeof(path), "%s/%s", directory, wire::kSocketName);
  return length >= 0 && static_cast<size_t>(length) < sizeof(path);
}

wire::Hello MakeHello(uint32_t magic) {
  return {magic, wire::kWireMajor, wire::kNeededMinor, getpid(), 0, PidNamespace(), {}};
}

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
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    out += snprintf(out, 3, "%02x", uuid[i]);
  }
}

}  // namespace gpuloom
