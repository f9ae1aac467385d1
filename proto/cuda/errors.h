// SPDX-License-Identifier: Apache-2.0
// cuGetErrorName and cuGetErrorString as constant tables, for every library that stands in for libcuda and for
// messages. Header-only, no allocation, no start-up code; safe in a tenant's process and from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// "CUDA_ERROR_OUT_OF_MEMORY"; null for a number that is not a CUresult.
[[nodiscard]] constexpr const char* ErrorName(CUresult result) {
  switch (result) {
#define CUDA_RESULT(name, text) \
  case name:                    \
    return #name;
#include "proto/cuda/errors.def"
#undef CUDA_RESULT
    default:
      return nullptr;
  }
}

// "out of memory"; null for a number that is not a CUresult.
[[nodiscard]] constexpr const char* ErrorText(CUresult result) {
  switch (result) {
#define CUDA_RESULT(name, text) \
  case name:                    \
    return text;
#include "proto/cuda/errors.def"
#undef CUDA_RESULT
    default:
      return nullptr;
  }
}

static_assert(ErrorName(CUDA_ERROR_OUT_OF_MEMORY)[0] == 'C');
static_assert(ErrorName(static_cast<CUresult>(12345)) == nullptr);

}  // namespace gpuloom
