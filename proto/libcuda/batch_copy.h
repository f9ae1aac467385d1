// SPDX-License-Identifier: Apache-2.0
// What copies in batches ask of the library they are compiled into, beside its plain copies.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Bytes of an array's elements; 0 when the handle is no living array. From any thread.
uint32_t ArrayElementBytes(CUarray handle);

}  // namespace gpuloom
