// Linking device code through the executor's driver.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Links the parts that a wrapper of linked device code (version 2) lists. *image is malloc'ed.
// INVALID_IMAGE when there are none.
[[nodiscard]] CUresult LinkParts(const void* wrapper, uint8_t** image, uint64_t* image_bytes);

}  // namespace gpuloom
