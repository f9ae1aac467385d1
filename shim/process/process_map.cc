// SPDX-License-Identifier: Apache-2.0
#include "shim/process/process_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace gpuloom {
namespace {

// Linux' struct procmap_query and what goes with it, for headers that do not have it yet.
struct Query {
  uint64_t size_bytes;
  uint64_t flags;
  uint64_t address;
  uint64_t begin;
  uint64_t end;
  uint64_t mapping_flags;
  uint64_t page_bytes;
  uint64_t file_offset;
  uint64_t inode;
  uint32_t device_major;
  uint32_t device_minor;
  uint32_t name_bytes;  // in: what there is room for; out: 0 without a name
  uint32_t build_id_bytes;
  uint64_t name;
  uint64_t build_id;
};
static_assert(sizeof(Query) == 104);
constexpr unsigned long kQueryRequest = _IOWR('f', 17, Query);
constexpr uint64_t kCoveringOrNext = 0x10;
constexpr uint64_t kReadable = 0x1, kWritable = 0x2, kExecutable = 0x4, kShared = 0x8;

// `name`: the last column of a line. "[v" begins the kernel's own: [vdso], [vvar], [vsyscall].
void Name(const char* name, Mapped* mapped) {
  mapped->is_heap = strstr(name, "[heap]") != nullptr;
  mapped->is_stack = strstr(name, "[stack") != nullptr || strstr(name, "[v") != nullptr;
}

}  // namespace

// Read by system calls and into a buffer of its own: stdio would allocate, and change what is being
// read.
ProcessMap::ProcessMap(By by) : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), by_(by) {}
ProcessMap::~ProcessMap() {
  if (file_ >= 0) close(file_);
}

// Longer lines are cut: what matters is at their beginning.
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
  mapped->executable = at[3] == 'x';
  mapped->is_private = at[4] == 'p';
  mapped->file_offset = strtoull(at + 5, &at, 16);
  const uint64_t major = strtoull(at, &at, 16);
  mapped->device = major << 32 | (*at == ':' ? strtoull(at + 1, &at, 16) : 0);
  mapped->inode = strtoull(at, &at, 10);
  Name(at, mapped);
  return true;
}

// PROCMAP_QUERY for the mapping that covers the address, or else the next one. ENOENT means that
// there is none; any other error that this kernel cannot be asked.
ProcessMap::Asked ProcessMap::Ask(uint64_t address, Mapped* mapped) {
  Query query = {};
  query.size_bytes = sizeof(query);
  query.flags = kCoveringOrNext;
  query.address = address;
  query.name_bytes = sizeof(buffer_);
  query.name = reinterpret_cast<uint64_t>(buffer_);
  if (ioctl(file_, kQueryRequest, &query) != 0) {
    return errno == ENOENT ? Asked::kNothing : Asked::kCannot;
  }
  *mapped = {query.begin,
             query.end,
             (query.mapping_flags & kReadable) != 0,
             (query.mapping_flags & kWritable) != 0,
             (query.mapping_flags & kExecutable) != 0,
             (query.mapping_flags & kShared) == 0,
             query.file_offset,
             uint64_t{query.device_major} << 32 | query.device_minor,
             query.inode,
             false,
             false};
  if (query.name_bytes != 0) Name(buffer_, mapped);
  return Asked::kFound;
}

bool ProcessMap::Find(uint64_t address, Mapped* mapped) {
  if (file_ < 0) return false;
  if (by_ == By::kQuery) {
    const Asked asked = Ask(address, mapped);
    if (asked != Asked::kCannot) return asked == Asked::kFound;
    // For good. The text has not been read yet, so nothing of it is missed.
    by_ = By::kText;
  }
  while (Next(mapped)) {
    if (mapped->end > address) return true;
  }
  return false;
}

}  // namespace gpuloom
