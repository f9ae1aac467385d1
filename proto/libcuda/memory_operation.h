// SPDX-License-Identifier: Apache-2.0
// A stream's own writes of words and waits for words, as the shim and the software driver share them:
// memory_operation_api.cc has CUDA's functions, of which each library does the work.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom {

// The library's own: to the stream's end, or into its capture. There is at least one operation, with
// a kind and flags that exist; whether their words are memory that a device reaches is still to be
// judged, of all before the first is done.
[[nodiscard]] CUresult SubmitMemoryOperations(CUstream stream, graph::NullStream null_means,
                                              unsigned count, CUstreamBatchMemOpParams* operations);
// The stream's handle and the thread's context alone.
[[nodiscard]] CUresult JudgeMemoryOperationStream(CUstream stream, graph::NullStream null_means);

inline bool IsWide(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
         operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

}  // namespace gpuloom
