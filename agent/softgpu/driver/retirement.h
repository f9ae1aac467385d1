// SPDX-License-Identifier: Apache-2.0
// Removes pages while a kernel or copy may still access them.
//
// A freed range leaves the address table first, so that later accesses get an illegal-address fault. But a kernel may
// be between its check and its access, and that access must not kill the process. So the pages are replaced at once by
// anonymous zero pages (the real memory is released immediately), and those are unmapped only when all work that was
// running at that moment has ended. Never destroyed. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class Retirement {
 public:
  static Retirement& Instance();

  // The pages of [begin, begin + size_bytes) show zeros after this call; the addresses stay reserved.
  void Blank(uint64_t begin, uint64_t size_bytes);
  // Blank, and then returns the addresses to the system as soon as nobody can be touching them.
  void Unmap(uint64_t begin, uint64_t size_bytes);

  struct Piece {
    uint64_t begin;
    uint64_t size_bytes;
    uint64_t end() const { return begin + size_bytes; }
  };
  // Whatever of [begin, begin + size_bytes) still waits to be returned becomes the caller's, blank, in order of
  // address: a program that frees addresses can have them again at once, as with the real driver.
  [[nodiscard]] std::vector<Piece> TakeBack(uint64_t begin, uint64_t size_bytes);

  // Encloses everything that touches checked addresses: a kernel, a copy, a memset.
  class Touching {
   public:
    Touching();
    ~Touching();
    Touching(const Touching&) = delete;
    Touching& operator=(const Touching&) = delete;

   private:
    uint64_t epoch_;
  };

 private:
  struct Range {
    uint64_t epoch;
    uint64_t begin;
    uint64_t size_bytes;
  };

  void ReapLocked() GPULOOM_REQUIRES(mutex_);

  Mutex mutex_;
  uint64_t epoch_ GPULOOM_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, int> touching_ GPULOOM_GUARDED_BY(mutex_);  // epoch at the start → how many
  std::vector<Range> retired_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::softgpu
