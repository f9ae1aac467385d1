// SPDX-License-Identifier: Apache-2.0
// Physical memory: what cuMemCreate makes and what an imported descriptor stands for.
//
// It is a sealed memfd, so its pages appear when touched, begin as zeros, and can be mapped in
// several processes. The device gets the bytes back when the last handle and the last mapping in
// this process are gone; an imported piece is charged to the process that created it. Handles,
// mappings and regions share ownership. Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/softgpu/driver/device.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

// The unit of cuMemCreate, as on the real driver.
inline constexpr uint64_t kGranularityBytes = uint64_t{2} << 20;

struct Physical {
  Physical() = default;
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  int fd = -1;
  uint64_t size_bytes = 0;
  CUmemAllocationProp properties{};
  Device* device = nullptr;  // nullptr for host memory
  bool charged = false;      // counted in device->used_bytes
};

[[nodiscard]] CUresult MakePhysical(uint64_t size_bytes, const CUmemAllocationProp& properties,
                                    std::shared_ptr<Physical>& physical);
// Opens a descriptor that cuMemExportToShareableHandle gave, in this process or another. The caller
// keeps the descriptor.
[[nodiscard]] CUresult ImportPhysical(int fd, std::shared_ptr<Physical>& physical);
// A new descriptor of the memory, close-on-exec.
[[nodiscard]] CUresult ExportPhysical(const Physical& physical, int& fd);

// Values of CUmemGenericAllocationHandle. A piece of memory has one handle value;
// cuMemRetainAllocationHandle increments its count.
[[nodiscard]] CUmemGenericAllocationHandle AddHandle(const std::shared_ptr<Physical>& physical);
[[nodiscard]] std::shared_ptr<Physical> FindHandle(CUmemGenericAllocationHandle handle);
// False when there is no such handle.
[[nodiscard]] bool ReleaseHandle(CUmemGenericAllocationHandle handle);

}  // namespace gpuloom::softgpu
