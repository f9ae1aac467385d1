// What the kernel says is mapped in this process (/proc/self/maps). Owns a descriptor; one thread.
//
//   ProcessMap map;
//   Mapped mapped;
//   while (map.Next(&mapped)) …
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom {

struct Mapped {
  uint64_t begin;
  uint64_t end;
  bool readable;
  bool writable;
  bool is_private;
  uint64_t file_offset;
  uint64_t device;  // major << 32 | minor
  uint64_t inode;   // 0: no file
  bool is_heap;
  bool is_stack;  // the main thread's, or the kernel's own
};

class ProcessMap {
 public:
  ProcessMap();
  ~ProcessMap();
  ProcessMap(const ProcessMap&) = delete;
  ProcessMap& operator=(const ProcessMap&) = delete;

  // In the order of addresses. False at the end.
  [[nodiscard]] bool Next(Mapped* mapped);
  // The first that ends behind `address`. Goes on from where Next is.
  [[nodiscard]] bool Find(uint64_t address, Mapped* mapped);

 private:
  bool ReadLine(char* line, size_t capacity);

  int file_;
  char buffer_[4096];
  size_t have_ = 0;
  size_t at_ = 0;
};

}  // namespace gpuloom
