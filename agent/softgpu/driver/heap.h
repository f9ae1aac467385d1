// SPDX-License-Identifier: Apache-2.0
// A context's heap for malloc and free in kernels: one piece of device memory of CU_LIMIT_MALLOC_HEAP_SIZE bytes, taken
// when a kernel first asks. What a kernel has allocated stays until a kernel frees it, or the context ends. Owned by
// its context. Safe from any thread.
#pragma once

#include <cstdint>
#include <map>

#include "agent/softgpu/exec/machine/kernel_heap.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Context;

class Heap final : public KernelHeap {
 public:
  explicit Heap(Context& context) : context_(context) {}
  uint64_t Allocate(uint64_t size_bytes) override;
  bool Free(uint64_t address) override;
  // True once a kernel has asked for memory: the heap's size can then not be changed.
  [[nodiscard]] bool in_use();
  // Call when the heap's memory has been freed with the rest of the context's memory.
  void Forget();

 private:
  bool BeginLocked() GPULOOM_REQUIRES(mutex_);

  Context& context_;
  Mutex mutex_;
  bool begun_ GPULOOM_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, uint64_t> free_
      GPULOOM_GUARDED_BY(mutex_);  // address to size; neighbours are joined
  std::map<uint64_t, uint64_t> used_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::softgpu
