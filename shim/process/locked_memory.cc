// SPDX-License-Identifier: Apache-2.0
#include "shim/process/locked_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace gpuloom {
namespace {

// "VmLck:\t       0 kB", if the text has all of the line.
bool ReadLine(const char* text, const char* name, uint64_t* kib) {
  const char* line = strstr(text, name);
  if (line == nullptr || strchr(line + strlen(name), '\n') == nullptr) return false;
  *kib = strtoull(line + strlen(name), nullptr, 10);
  return true;
}

}  // namespace

bool ReadLockedMemory(LockedMemory* memory) {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  // Once is enough, except for a process of hundreds of groups: their line comes first.
  char text[4096];
  constexpr size_t kLongestLineBytes = 64;
  size_t kept_bytes = 0;
  bool locked = false, pinned = false;
  while (!locked || !pinned) {
    const ssize_t n = read(file, text + kept_bytes, sizeof(text) - 1 - kept_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    const size_t bytes = kept_bytes + static_cast<size_t>(n);
    text[bytes] = '\0';
    locked = locked || ReadLine(text, "\nVmLck:", &memory->locked_kib);
    pinned = pinned || ReadLine(text, "\nVmPin:", &memory->pinned_kib);
    // A line that ends behind what has been read is whole the next time.
    kept_bytes = bytes < kLongestLineBytes ? bytes : kLongestLineBytes;
    memmove(text, text + bytes - kept_bytes, kept_bytes);
  }
  close(file);
  return locked && pinned;
}

}  // namespace gpuloom
