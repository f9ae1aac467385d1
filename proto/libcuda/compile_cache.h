// SPDX-License-Identifier: Apache-2.0
// The driver's cache of compiled code on disk, as NVRTC (12.9 and later) and nvJitLink use it: they keep there what
// they have made, and compile again without it, which takes some 300 ms for a kernel of cuDNN's. Files of the
// tenant's own, in its own file system: <CUDA_CACHE_PATH or ~/.nv/ComputeCache>/gpuloom/<hash of all that the code is
// made from>. In a folder of its own, because NVIDIA's format is another. Respects CUDA_CACHE_DISABLE and
// CUDA_CACHE_MAXSIZE: what was used longest ago goes first. A file that is damaged is not there. Safe from any
// thread, and beside other processes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// All that a piece of code is made from. The texts may be null.
struct CompileInputs {
  uint32_t kind;  // what is made, by the caller's own count
  const void* data;
  size_t data_bytes;
  const char* options;
  const char* host;
  const char* compiler;  // its release
  uint32_t architecture;
};

struct CompileCacheKey;

// CUDA_ERROR_NOT_INITIALIZED: there is no cache, because it is off or its folder cannot be written.
[[nodiscard]] CUresult MakeCompileCacheKey(const CompileInputs& inputs, CompileCacheKey** key);
void DestroyCompileCacheKey(CompileCacheKey* key);

// CUDA_ERROR_NOT_FOUND if it is not there. *data is malloc'ed.
[[nodiscard]] CUresult FindCompiled(const CompileCacheKey& key, void** data, uint32_t* data_bytes);
// Replaces what is there.
[[nodiscard]] CUresult KeepCompiled(const CompileCacheKey& key, const void* data,
                                    uint32_t data_bytes);

}  // namespace gpuloom
