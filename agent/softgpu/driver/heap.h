// A context's heap for malloc and free in kernels: one piece of device memory of
// CU_LIMIT_MALLOC_HEAP_SIZE bytes, taken when a kernel first asks. What a kernel has allocated stays
// until a kernel frees it, or the context ends. Safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "agent/softgpu/exec/machine/kernel_heap.h"

namespace gpuloom::softgpu {

struct Context;

class Heap final : public KernelHeap {
 public:
  explicit Heap(Context& context) : context_(context) {}
  uint64_t Allocate(uint64_t size_bytes) override;
  bool Free(uint64_t address) override;
  // Its size is settled: some kernel has asked for memory.
  [[nodiscard]] bool in_use();
  // The memory went with the context's other memory.
  void Forget();

 private:
  bool BeginLocked();

  Context& context_;
  std::mutex mutex_;
  bool begun_ = false;
  std::map<uint64_t, uint64_t> free_;  // address to size; neighbours are joined
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace gpuloom::softgpu
