// SPDX-License-Identifier: Apache-2.0
// Libraries and modules: one kind of object for both handles. Images are loaded at once, through
// the arena; the executor copies them before reading them.
//
// A reset of the context ends modules. Libraries survive: one whose image the program preserves is
// reloaded when it is next used, so that its variables start anew; others stay loaded.
//
// One table per process owns the libraries; a Library lives until it is unloaded. Safe from any thread for different
// libraries; EnsureLoaded and ListKernels also for one. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"
#include "shim/module/kernel.h"
#include "shim/process/futex.h"

namespace gpuloom {

// Guards the libraries' lists of kernels. Held while the executor is asked for one.
extern Lock list_lock;

struct Library {
  static constexpr uint32_t kBuckets = 32;

  std::atomic<uint32_t> alive;
  bool is_module;                    // made by cuModuleLoad*: unloaded by cuModuleUnload only
  std::atomic<bool> loaded;          // the executor has it
  std::atomic<uint32_t> references;  // texture and surface references got so far
  CUresult broken;                   // what its first use returns; CUDA_SUCCESS otherwise
  const void* image;                 // if the program preserves it, or null
  uint64_t image_bytes;
  // Its `__managed__` variables: memory that lives as long as the library, across resets.
  uint64_t managed_begin;  // 0: none
  uint64_t managed_bytes;
  // All kernels in the image's order, asked for once.
  Kernel** listed GPULOOM_GUARDED_BY(list_lock);  // malloc'ed
  uint32_t listed_count GPULOOM_GUARDED_BY(list_lock);
  bool is_listed GPULOOM_GUARDED_BY(list_lock);
  Kernel* buckets[kBuckets] GPULOOM_GUARDED_BY(kernels_lock);  // kernels got so far, by name
};

Library* FindLibrary(const void* handle);
wire::LibraryId IdOf(const Library* library);

// As cuModuleLoadData: a wrapper, fatbin, cubin or PTX of unknown length.
[[nodiscard]] CUresult LoadModule(CUmodule* module, const void* image);

// Reloads it after a reset; returns the error of an image that failed to load.
[[nodiscard]] CUresult EnsureLoaded(Library* library);

// All of its kernels, which live as long as the library. Asks the executor for their names, once.
[[nodiscard]] CUresult ListKernels(Library* library, Kernel* const** kernels, uint32_t* count);
// The library is unloaded.
void ForgetList(Library* library);

// For a reset of the context.
void ResetAllLibraries();

}  // namespace gpuloom
