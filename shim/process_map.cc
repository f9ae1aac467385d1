#include "shim/process_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace gpuloom {

ProcessMap::ProcessMap() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
ProcessMap::~ProcessMap() {
  if (file_ >= 0) close(file_);
}

// Lines are cut at the capacity: what matters stands at their begin.
bool ProcessMap::ReadLine(char* line, size_t capacity) {
  size_t length = 0;
  for (;;) {
    if (at_ == have_) {
      const ssize_t n = file_ >= 0 ? read(file_, buffer_, sizeof(buffer_)) : 0;
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at_ = 0;
      have_ = static_cast<size_t>(n);
    }
    const char c = buffer_[at_++];
    if (c == '\n') break;
    if (length + 1 < capacity) line[length++] = c;
  }
  line[length] = '\0';
  return true;
}

// "7f0000000000-7f0000001000 rw-p 00000000 00:00 0          [heap]"
bool ProcessMap::Next(Mapped* mapped) {
  char line[160];
  if (!ReadLine(line, sizeof(line))) return false;
  char* at = line;
  mapped->begin = strtoull(at, &at, 16);
  mapped->end = strtoull(at + 1, &at, 16);
  if (*at != ' ' || strlen(at) < 6) return false;
  mapped->readable = at[1] == 'r';
  mapped->writable = at[2] == 'w';
  mapped->is_private = at[4] == 'p';
  mapped->file_offset = strtoull(at + 5, &at, 16);
  const uint64_t major = strtoull(at, &at, 16);
  mapped->device = major << 32 | (*at == ':' ? strtoull(at + 1, &at, 16) : 0);
  mapped->inode = strtoull(at, &at, 10);
  mapped->is_heap = strstr(at, "[heap]") != nullptr;
  mapped->is_stack = strstr(at, "[stack") != nullptr || strstr(at, "[v") != nullptr;
  return true;
}

bool ProcessMap::Find(uint64_t address, Mapped* mapped) {
  while (Next(mapped)) {
    if (mapped->end > address) return true;
  }
  return false;
}

}  // namespace gpuloom
