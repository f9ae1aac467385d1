// SPDX-License-Identifier: Apache-2.0
// What batched copies need from the library they are compiled into, besides its plain copies.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Element size of an array in bytes; 0 if the handle is not a live array. Safe from any thread.
uint32_t ArrayElementBytes(CUarray handle);

}  // namespace gpuloom
