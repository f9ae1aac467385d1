// SPDX-License-Identifier: Apache-2.0
// Launching a kernel: the checks that CUDA makes at the call, and the work that runs the grid.
// Safe from any thread.
#pragma once

#include <functional>

#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/stream.h"
#include "agent/softgpu/exec/machine/grid.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

// The largest cluster that every program may request, as CUDA promises for compute capability 9.0.
inline constexpr uint64_t kMaxClusterBlocks = 8;

struct LaunchShape {
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;
  unsigned dynamic_shared_bytes = 0;
  bool cooperative = false;
  bool has_clusters = false;  // requested, even if of one block
};

// The parameters come as CUDA's array of pointers or as its list of a buffer and its size; never
// both.
[[nodiscard]] CUresult Launch(Stream& stream, const FoundFunction& found, const LaunchShape& shape,
                              void** params, void** extra);
// Makes the checks only; `run` runs the grid later, once or often.
[[nodiscard]] CUresult PrepareLaunch(const FoundFunction& found, const LaunchShape& shape,
                                     void** params, void** extra, std::function<void()>& run);

// How many blocks of that shape fit on one multiprocessor at once; 0 when not even one.
[[nodiscard]] int BlocksPerMultiprocessor(const Kernel& kernel, uint64_t threads,
                                          uint64_t dynamic_shared_bytes);

}  // namespace gpuloom::softgpu
