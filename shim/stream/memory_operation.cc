// SPDX-License-Identifier: Apache-2.0
// A stream's own writes of words and waits for words: proto/libcuda/memory_operation_api.cc's work, through
// the executor.
#include "proto/libcuda/memory_operation.h"

#include "proto/cuda/return_if_error.h"
#include "proto/wire/memory_operation_commands.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

using Params = CUstreamBatchMemOpParams;

bool Waits(const Params& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

// CUDA wants aligned words in memory that the device reaches at the program's address.
bool IsReachable(const Params& operation) {
  if (operation.operation == CU_STREAM_MEM_OP_BARRIER) return true;
  // Writes and waits have their address in one place.
  const CUdeviceptr address = operation.writeValue.address;
  const uint32_t word_bytes = IsWide(operation) ? 8 : 4;
  KnownMemory found;
  return address % word_bytes == 0 && FindMemory(address, word_bytes, &found);
}

CUresult Post(wire::StreamId stream, const Params& operation) {
  const bool wide = IsWide(operation);
  const uint32_t word_bytes = wide ? 8 : 4;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
      const auto& write = operation.writeValue;
      return session.PostOnStream<wire::StreamWriteValue>(
          stream, 0, [&](wire::StreamWriteValue::Request& request, uint8_t*) {
            request = {write.address, wide ? write.value64 : write.value, stream, word_bytes};
          });
    }
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
      const auto& wait = operation.waitValue;
      return session.PostOnStream<wire::StreamWaitValue>(
          stream, 0, [&](wire::StreamWaitValue::Request& request, uint8_t*) {
            request = {
                wait.address, wide ? wait.value64 : wait.value, stream, word_bytes, wait.flags, 0};
          });
    }
    default:
      // A barrier: a stream's writes are in order with what is before them as it is.
      return CUDA_SUCCESS;
  }
}

}  // namespace

CUresult JudgeMemoryOperationStream(CUstream handle, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  return FindStream(handle, null_means, &stream);
}

CUresult SubmitMemoryOperations(CUstream handle, DefaultStream null_means, unsigned count,
                                Params* operations) {
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  for (unsigned i = 0; i < count; ++i) {
    if (!IsReachable(operations[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult captured;
  if (Records(stream, &captured, [&](graph::NodeParams* node) {
        return graph::MakeBatch({PrimaryContext(), count, operations, 0}, node);
      })) {
    return captured;
  }
  // One command each. CUDA promises an order among the operations of a batch, not that they happen
  // together.
  for (unsigned i = 0; i < count; ++i) {
    const Params one = operations[i];  // they may lie in the memory that is sent away
    if (Waits(one)) {
      const WaitForProgram waits;
      CUDA_RETURN_IF_ERROR(waits.result());
      CUDA_RETURN_IF_ERROR(Post(stream, one));
      continue;
    }
    const MigrationUse use(one.writeValue.address);
    CUDA_RETURN_IF_ERROR(use.result());
    CUDA_RETURN_IF_ERROR(Post(stream, one));
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
