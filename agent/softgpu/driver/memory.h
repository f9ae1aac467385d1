// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated and mapped in one step: cuMemAlloc, cuMemHostAlloc, cuMemHostRegister,
// managed memory and the variables of modules. Virtual memory management is virtual_memory.h.
//
// Every region belongs to a context and ends with it. Freeing here does not wait for running work;
// the entry points wait first where CUDA does. Whatever the caller does, work that touches a freed
// region faults, and the process lives. Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/softgpu/driver/address_table.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

// Device allocations are counted in these steps and a kernel may touch a whole step, as on the real
// device.
inline constexpr uint64_t kDeviceStepBytes = 512;

class Memory {
 public:
  static Memory& Instance();

  // kDevice, kManaged, kModule and kArray take from the device's memory; kHost, and what another
  // process has allocated, do not. Zeroed, except for memory from a file; at least page-aligned.
  [[nodiscard]] CUresult Allocate(Context& context, RegionKind kind, uint64_t size_bytes,
                                  unsigned flags, uint64_t& begin,
                                  std::shared_ptr<PoolShare> share = nullptr,
                                  const std::shared_ptr<FilePiece>& piece = nullptr);
  // INVALID_VALUE unless a region of that kind begins exactly there.
  [[nodiscard]] CUresult Free(uint64_t begin, RegionKind kind);

  // Makes existing pages of the program known to kernels, at the same address.
  [[nodiscard]] CUresult Register(Context& context, uint64_t begin, uint64_t size_bytes,
                                  unsigned flags);
  [[nodiscard]] CUresult Unregister(uint64_t begin);

  // Everything that lives with the context.
  void FreeAllOf(const Context& context);

 private:
  static void Drop(const Region& region);
};

}  // namespace gpuloom::softgpu
