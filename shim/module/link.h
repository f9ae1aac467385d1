// SPDX-License-Identifier: Apache-2.0
// Links device code through the executor's driver. Keeps no state; safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/module/jit_options.h"

namespace gpuloom {

// Links the parts that a wrapper of linked device code (version 2) lists, with the program's options, which receive
// the report. *image is malloc'ed. INVALID_IMAGE if there are none.
[[nodiscard]] CUresult LinkParts(const void* wrapper, const JitOptions& jit, uint8_t** image,
                                 uint64_t* image_bytes);

}  // namespace gpuloom
