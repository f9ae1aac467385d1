// SPDX-License-Identifier: Apache-2.0
// Propagates errors of CUDA calls.
//
//   CUDA_RETURN_IF_ERROR(cuda.cuMemMap(address, size_bytes, 0, handle, 0));
//
// A macro, because it returns: the result of the call, unless that is CUDA_SUCCESS.
#pragma once

#define CUDA_RETURN_IF_ERROR(...)                                                                  \
  do {                                                                                             \
    if (const CUresult cuda_result_of_call = (__VA_ARGS__); cuda_result_of_call != CUDA_SUCCESS) { \
      return cuda_result_of_call;                                                                  \
    }                                                                                              \
  } while (false)
