// SPDX-License-Identifier: Apache-2.0
// How an image reaches the executor. Images go through the arena, or by their hash if the executor has them already.
// Safe from any thread, for different libraries.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/module/jit_options.h"
#include "shim/module/library.h"
#include "shim/module/load_log.h"

namespace gpuloom {

// Has the executor load the image as this library, compiled with the options if there are any. On failure *log has what
// the compiler reported.
[[nodiscard]] CUresult LoadImage(Library* library, const void* image, uint64_t image_bytes,
                                 const JitOptions& jit, LoadLog* log);

[[nodiscard]] CUresult UnloadImage(const Library* library);

}  // namespace gpuloom
