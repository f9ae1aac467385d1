// Kernels of loaded libraries: what the program knows of one is cached here, so that launches and
// attribute queries need no answer from the executor. A CUkernel and its CUfunction are one object.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/commands.h"

namespace gpuloom {

struct Library;

struct OccupancyAnswer {
  int32_t block_threads;  // 0: no answer here
  uint32_t flags;
  uint64_t dynamic_shared_bytes;
  int32_t blocks_per_sm;
};

struct Kernel {
  static constexpr uint32_t kStale = 2;  // the library was reset: the executor must be asked again

  std::atomic<uint32_t> alive;
  bool params_known;  // false: more parameters than an answer holds; only a packed buffer will do
  bool params_have_holes;
  uint32_t param_count;
  uint32_t param_bytes;       // of the packed buffer
  wire::KernelParam* params;  // malloc'ed, param_count of them
  Library* library;
  Kernel* next;  // of the library's bucket
  char* name;    // malloc'ed
  std::atomic<int32_t> attributes[wire::kFunctionAttributes];
  OccupancyAnswer occupancy[4];  // guarded by the occupancy lock
  uint32_t next_occupancy;

  int32_t attribute(CUfunction_attribute attribute) const {
    return attributes[attribute].load(std::memory_order_relaxed);
  }
};

// For a CUkernel or a CUfunction; nullptr when the value is neither. On the path of every launch.
Kernel* FindKernel(const void* handle);
wire::KernelId IdOf(const Kernel* kernel);

// The library's kernel of that name; asks the executor the first time.
[[nodiscard]] CUresult GetKernel(Library* library, const char* name, Kernel** kernel);

// Before its id is used: asks the executor again after a reset. On the path of every launch.
[[nodiscard]] CUresult RefreshKernel(Kernel* kernel);

// The library was reset; its kernels' handles stay.
void MarkKernelsStale(Library* library);

// The library goes: its kernels' handles are invalid from here on.
void ReleaseKernels(Library* library);

}  // namespace gpuloom
