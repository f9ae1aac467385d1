// SPDX-License-Identifier: Apache-2.0
// The driver's parameters of a kernel node. Points into itself and to the kernel's parameters,
// which the caller owns. Safe from any thread.
//
// The node runs on the multiprocessors of `context` (a partition's, or all of the primary context's), whatever stream
// its graph is launched in. If it were named by function instead of kernel, it would always run on all of them
// (measured, driver 580).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

struct KernelNodeParams {
  // `launch` has grid, block and dynamic_shared_bytes.
  template <typename Launch>
  KernelNodeParams(CUkernel kernel, CUcontext context, const Launch& launch,
                   std::span<const uint8_t> params)
      : bytes(params.size()) {
    extra[1] = const_cast<uint8_t*>(params.data());
    value.kern = kernel;
    value.ctx = context;
    value.gridDimX = launch.grid[0];
    value.gridDimY = launch.grid[1];
    value.gridDimZ = launch.grid[2];
    value.blockDimX = launch.block[0];
    value.blockDimY = launch.block[1];
    value.blockDimZ = launch.block[2];
    value.sharedMemBytes = launch.dynamic_shared_bytes;
    if (bytes != 0) value.extra = extra;
  }
  KernelNodeParams(const KernelNodeParams&) = delete;
  KernelNodeParams& operator=(const KernelNodeParams&) = delete;

  size_t bytes;
  void* extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                    CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS_v2 value = {};
};

}  // namespace gpuloom::executor
