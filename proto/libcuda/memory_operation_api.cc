// SPDX-License-Identifier: Apache-2.0
// cuStreamWriteValue*, cuStreamWaitValue*, cuStreamBatchMemOp, their first and second
// versions, which differ only in what devices they were offered for. Codes are those of an H200.
//
// Compiled into the shim and into the software driver.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/memory_operation.h"

namespace gpuloom {
namespace {

using Params = CUstreamBatchMemOpParams;

constexpr unsigned kMaxOperations = 256;  // CUDA's own limit

// Everything but the address, which only the library can judge.
CUresult Judge(const Params& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      // Refuses NO_MEMORY_BARRIER too, which exists only on devices without the second version.
      return operation.writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      // CAN_FLUSH_REMOTE_WRITES is 0.
      if ((operation.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      return operation.waitValue.flags <= CU_STREAM_WAIT_VALUE_NOR ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_BARRIER:
      return operation.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Batch(CUstream stream, DefaultStream null_means, unsigned count, Params* operations,
               unsigned flags) {
  CUDA_RETURN_IF_ERROR(JudgeMemoryOperationStream(stream, null_means));
  if (count > kMaxOperations || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (operations == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    // All are judged before anything is submitted.
    CUDA_RETURN_IF_ERROR(Judge(operations[i]));
  }
  return SubmitMemoryOperations(stream, null_means, count, operations);
}

CUresult Write(CUstream stream, DefaultStream null_means, CUstreamBatchMemOpType type,
               CUdeviceptr address, uint64_t value, unsigned flags) {
  Params operation = {};
  operation.writeValue.operation = type;
  operation.writeValue.address = address;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return Batch(stream, null_means, 1, &operation, 0);
}

CUresult Wait(CUstream stream, DefaultStream null_means, CUstreamBatchMemOpType type,
              CUdeviceptr address, uint64_t value, unsigned flags) {
  Params operation = {};
  operation.waitValue.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return Batch(stream, null_means, 1, &operation, 0);
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned flags, DefaultStream null_means) {
  return Write(stream, null_means, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned flags, DefaultStream null_means) {
  return Write(stream, null_means, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult api::cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags, DefaultStream null_means) {
  return Wait(stream, null_means, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned flags, DefaultStream null_means) {
  return Wait(stream, null_means, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult api::cuStreamBatchMemOp(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams* operations, unsigned flags,
                                 DefaultStream null_means) {
  return Batch(stream, null_means, count, operations, flags);
}

CUresult api::cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags, DefaultStream null_means) {
  return Write(stream, null_means, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags, DefaultStream null_means) {
  return Write(stream, null_means, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult api::cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags, DefaultStream null_means) {
  return Wait(stream, null_means, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags, DefaultStream null_means) {
  return Wait(stream, null_means, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult api::cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* operations, unsigned flags,
                                    DefaultStream null_means) {
  return Batch(stream, null_means, count, operations, flags);
}
