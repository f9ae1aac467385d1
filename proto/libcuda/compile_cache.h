// SPDX-License-Identifier: Apache-2.0
// The driver's cache of compiled code on disk, for NVRTC (12.9 and later) and nvJitLink: they store there what they
// have compiled. Without it they compile again, which takes some 300 ms for a kernel of cuDNN. The files belong to
// the tenant and lie in its own file system: <CUDA_CACHE_PATH or ~/.nv/ComputeCache>/gpuloom/<hash of all that the
// code is made from>; in a separate folder, because NVIDIA's format is different. Respects CUDA_CACHE_DISABLE and
// CUDA_CACHE_MAXSIZE: the least recently used files are deleted first. A damaged file counts as missing. Safe from
// any thread, and beside other processes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// All that a piece of code is made from. The texts may be null.
struct CompileInputs {
  uint32_t kind;  // the kind of code, by the caller's own numbers
  const void* data;
  size_t data_bytes;
  const char* options;
  const char* host;
  const char* compiler;  // the compiler's release
  uint32_t architecture;
};

struct CompileCacheKey;

// The caller owns *key, until DestroyCompileCacheKey. CUDA_ERROR_NOT_INITIALIZED: there is no cache, because it is off
// or its folder cannot be written.
[[nodiscard]] CUresult MakeCompileCacheKey(const CompileInputs& inputs, CompileCacheKey** key);
void DestroyCompileCacheKey(CompileCacheKey* key);

// CUDA_ERROR_NOT_FOUND if there is no such code. *data is malloc'ed; the caller frees it.
[[nodiscard]] CUresult FindCompiled(const CompileCacheKey& key, void** data, uint32_t* data_bytes);
// Stores the code, replacing any earlier one.
[[nodiscard]] CUresult KeepCompiled(const CompileCacheKey& key, const void* data,
                                    uint32_t data_bytes);

}  // namespace gpuloom
