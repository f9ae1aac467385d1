// SPDX-License-Identifier: Apache-2.0
// What is mapped in this process (/proc/self/maps). Owns a descriptor; one thread.
//
// Kernels since 6.11 answer for one address (PROCMAP_QUERY) in a microsecond; on older ones the text is read up to that
// address, at 0.2 µs per mapping.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom {

struct Mapped {
  uint64_t begin;
  uint64_t end;
  bool readable;
  bool writable;
  bool executable;
  bool is_private;
  uint64_t file_offset;
  uint64_t device;  // major << 32 | minor
  uint64_t inode;   // 0: no file
  bool is_heap;
  bool is_stack;  // the main thread's, or the kernel's own
};

class ProcessMap {
 public:
  enum class By { kQuery, kText };

  // `by` kQuery: falls back to the text if the kernel has no such query.
  explicit ProcessMap(By by = By::kQuery);
  ~ProcessMap();
  ProcessMap(const ProcessMap&) = delete;
  ProcessMap& operator=(const ProcessMap&) = delete;

  // False without /proc; then nothing is found.
  [[nodiscard]] bool is_known() const { return file_ >= 0; }
  // Finds the first mapping that ends after `address`. Addresses must not decrease from call to call. Returns false if
  // there is none.
  [[nodiscard]] bool Find(uint64_t address, Mapped* mapped);

 private:
  enum class Asked { kFound, kNothing, kCannot };

  Asked Ask(uint64_t address, Mapped* mapped);
  bool Next(Mapped* mapped);
  bool ReadLine(char* line, size_t capacity);

  int file_;
  By by_;
  char buffer_[4096];
  size_t have_ = 0;
  size_t at_ = 0;
};

}  // namespace gpuloom
