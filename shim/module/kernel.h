// SPDX-License-Identifier: Apache-2.0
// Kernels of loaded libraries: their properties are cached here, so that launches and attribute queries need no reply
// from the executor. A CUkernel and its CUfunction are one object. Kernels live as long as their library. Safe from
// any thread, as long as the kernel's library is not unloaded meanwhile. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/kernel_commands.h"
#include "shim/process/futex.h"

namespace gpuloom {

struct Library;

// Guards the table of kernels and all libraries' buckets. Held while the executor is asked for a kernel, so that a name
// gives only one kernel.
extern Lock kernels_lock;
// Guards the kernels' cached answers.
extern Lock occupancy_lock;

struct OccupancyAnswer {
  int32_t block_threads;  // 0: the entry is empty
  uint32_t flags;
  uint64_t dynamic_shared_bytes;
  int32_t blocks_per_sm;
};

struct LaunchShape {
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t dynamic_shared_bytes;
};

struct ClusterAnswer {
  bool known;
  LaunchShape shape;
  wire::LaunchAttributes attributes;
  int32_t clusters;
};

struct Kernel {
  static constexpr uint32_t kStale =
      2;  // only listed, or the library was reset: the executor must be asked

  std::atomic<uint32_t> alive;
  bool described;  // false: only listed so far; all but the name is unknown
  bool params_have_holes;
  bool system_atomics;  // it may have atomic operations of the system's scope
  uint32_t param_count;
  uint32_t param_bytes;       // of the packed buffer
  wire::KernelParam* params;  // malloc'ed, param_count of them
  Library* library;
  Kernel* next GPULOOM_GUARDED_BY(kernels_lock);  // of the library's bucket
  char* name;                                     // malloc'ed
  std::atomic<int32_t> attributes[wire::kFunctionAttributes];
  bool cluster_is_fixed;  // by the kernel's code
  OccupancyAnswer occupancy[4] GPULOOM_GUARDED_BY(occupancy_lock);
  uint32_t next_occupancy GPULOOM_GUARDED_BY(occupancy_lock);
  ClusterAnswer clusters[2] GPULOOM_GUARDED_BY(occupancy_lock);
  uint32_t next_clusters GPULOOM_GUARDED_BY(occupancy_lock);

  int32_t attribute(CUfunction_attribute attribute) const {
    return attributes[attribute].load(std::memory_order_relaxed);
  }
};

// For a CUkernel or a CUfunction; nullptr if it is neither. On the path of every launch.
Kernel* FindKernel(const void* handle);
wire::KernelId IdOf(const Kernel* kernel);

// The library's kernel of that name; asks the executor the first time.
[[nodiscard]] CUresult GetKernel(Library* library, const char* name, Kernel** kernel);

// The library's kernel of that name, which the library is known to have. Needs no round trip: the
// kernel is described when it is first used.
[[nodiscard]] CUresult ListKernel(Library* library, const char* name, Kernel** kernel);

// FindKernel while the session lives, and RefreshKernel.
[[nodiscard]] CUresult FindUsableKernel(const void* handle, Kernel** kernel);

// Call before using its id: asks the executor again after a reset. On the path of every launch.
[[nodiscard]] CUresult RefreshKernel(Kernel* kernel);

// How many blocks of this kernel fit on a multiprocessor, and how many clusters on the device: answers of the
// executor's driver, cached.
[[nodiscard]] CUresult BlocksPerMultiprocessor(Kernel* kernel, int block_threads,
                                               size_t dynamic_shared_bytes, unsigned flags,
                                               int* blocks);
[[nodiscard]] CUresult MaxActiveClusters(Kernel* kernel, const LaunchShape& shape,
                                         const wire::LaunchAttributes& attributes, int* clusters);
// Adds the cluster size that the kernel was compiled with or given, unless the launch sets its own.
void AddKernelCluster(const Kernel& kernel, wire::LaunchAttributes* attributes);

void ForgetOccupancy(Kernel* kernel);

// The library was reset; its kernels' handles stay.
void MarkKernelsStale(Library* library);

// The library is unloaded: its kernels' handles are invalid from now on.
void ReleaseKernels(Library* library);

}  // namespace gpuloom
