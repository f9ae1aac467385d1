// SPDX-License-Identifier: Apache-2.0
// Memory that kernels allocate and free themselves. The driver owns it; it outlives every Run() that was
// given it. Every method may be called from any thread at any time.
#pragma once

#include <cstdint>

namespace gpuloom::softgpu {

class KernelHeap {
 public:
  virtual ~KernelHeap() = default;
  // Returns an address that kernels may touch, a multiple of 16, or 0 when there is not that much left.
  [[nodiscard]] virtual uint64_t Allocate(uint64_t size_bytes) = 0;
  // False for an address that Allocate has not returned, or that has been freed already.
  [[nodiscard]] virtual bool Free(uint64_t address) = 0;
};

}  // namespace gpuloom::softgpu
