// SPDX-License-Identifier: Apache-2.0
#include "shim/process/locked_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace gpuloom {
namespace {

// "VmLck:\t       0 kB"
bool ReadLine(const char* text, const char* name, uint64_t* kib) {
  const char* line = strstr(text, name);
  if (line == nullptr) return false;
  *kib = strtoull(line + strlen(name), nullptr, 10);
  return true;
}

}  // namespace

bool ReadLockedMemory(LockedMemory* memory) {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  // Enough, except for a process of hundreds of groups, whose line comes first: its locked memory
  // counts as unknown.
  char text[4096];
  ssize_t n;
  do n = read(file, text, sizeof(text) - 1);
  while (n < 0 && errno == EINTR);
  close(file);
  if (n <= 0) return false;
  text[n] = '\0';
  return ReadLine(text, "\nVmLck:", &memory->locked_kib) &&
         ReadLine(text, "\nVmPin:", &memory->pinned_kib);
}

}  // namespace gpuloom
