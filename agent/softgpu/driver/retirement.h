// SPDX-License-Identifier: Apache-2.0
// Pages taken away while a kernel or copy may still be looking at them.
//
// A freed range leaves the address table first, so that whoever touches it next gets an
// illegal-address fault. But a kernel may stand between its check and its access, and that access
// must not kill the process. So the pages are replaced at once by anonymous zero pages (the real
// memory is given back immediately) and those are unmapped only when all work that was running at
// that moment has ended. Safe from any thread.
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

  // The pages of [begin, begin + size_bytes) show zeros from now on; the addresses stay taken.
  void Blank(uint64_t begin, uint64_t size_bytes);
  // Blank, and give the addresses back to the system as soon as nobody can be touching them.
  void Unmap(uint64_t begin, uint64_t size_bytes);

  struct Piece {
    uint64_t begin;
    uint64_t size_bytes;
    uint64_t end() const { return begin + size_bytes; }
  };
  // What of [begin, begin + size_bytes) still waits to be given back becomes the caller's, blank as it
  // is, by rising addresses: who frees addresses can have them again at once, as with the real driver.
  [[nodiscard]] std::vector<Piece> TakeBack(uint64_t begin, uint64_t size_bytes);

  // Stands around everything that touches checked addresses: a kernel, a copy, a memset.
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
