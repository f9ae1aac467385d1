// SPDX-License-Identifier: Apache-2.0
// Stream memory operations (writes of words and waits for words), shared by the shim and the software driver:
// memory_operation_api.cc has CUDA's functions, each library does the work. Called on the program's threads, from any
// of them. Failures are CUDA's codes.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom {

// Provided by each library: appends to the stream, or to its capture. There is at least one operation, with valid
// kinds and flags; whether the words are memory that a device reaches is still to be checked, for all of them before
// the first is done.
[[nodiscard]] CUresult SubmitMemoryOperations(CUstream stream, DefaultStream null_means,
                                              unsigned count, CUstreamBatchMemOpParams* operations);
// Checks the stream's handle and the thread's context only.
[[nodiscard]] CUresult JudgeMemoryOperationStream(CUstream stream, DefaultStream null_means);

inline bool IsWide(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
         operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

}  // namespace gpuloom
