// SPDX-License-Identifier: Apache-2.0
// Libraries and modules: one kind of object behind both handles. Images are loaded at once, through
// the arena; the executor copies them before it looks.
//
// A reset of the context ends modules. Libraries live on: one whose image the program preserves is
// loaded again when it is next used, so that its variables begin anew; another stays loaded.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"
#include "shim/module/kernel.h"

namespace gpuloom {

struct Library {
  static constexpr uint32_t kBuckets = 32;

  std::atomic<uint32_t> alive;
  bool is_module;            // made by cuModuleLoad*: unloaded by cuModuleUnload only
  std::atomic<bool> loaded;  // the executor has it
  CUresult broken;           // what its first use is told; CUDA_SUCCESS otherwise
  const void* image;         // where the program preserves it, or null
  uint64_t image_bytes;
  // Its `__managed__` variables: a part of the arena, which lives as long as the library, resets
  // included.
  uint64_t managed_begin;  // 0: none
  uint64_t managed_bytes;
  // All kernels in the image's order, asked for once; guarded by the list lock.
  Kernel** listed;  // malloc'ed
  uint32_t listed_count;
  bool is_listed;
  Kernel* buckets[kBuckets];  // kernels got so far, by name; see kernel.h for the lock
};

Library* FindLibrary(const void* handle);
wire::LibraryId IdOf(const Library* library);

// As cuModuleLoadData: a wrapper, fatbin, cubin or PTX of unknown length.
[[nodiscard]] CUresult LoadModule(CUmodule* module, const void* image);

// Loads it again after a reset; tells what is wrong with an image that was found wanting.
[[nodiscard]] CUresult EnsureLoaded(Library* library);

// All of its kernels, which live as long as the library. Asks the executor for their names, once.
[[nodiscard]] CUresult ListKernels(Library* library, Kernel* const** kernels, uint32_t* count);

// For the reset of the context.
void ResetAllLibraries();

}  // namespace gpuloom
