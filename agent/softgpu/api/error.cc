// SPDX-License-Identifier: Apache-2.0
// cuGetErrorName, cuGetErrorString.
#include "proto/cuda/cuda_all.h"
#include "proto/cuda/errors.h"

extern "C" {

CUresult cuGetErrorName(CUresult result, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = gpuloom::ErrorName(result);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = gpuloom::ErrorText(result);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // extern "C"
