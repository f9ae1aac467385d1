// A stream's own writes of words and waits for words: cuStreamWriteValue*, cuStreamWaitValue*,
// cuStreamBatchMemOp, their first and second versions and both for the thread's own default stream.
// The versions differ only in what devices they were offered for. Codes are those of an H200.
#include "proto/wire/stream_memory_commands.h"
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/memory.h"
#include "shim/session.h"
#include "shim/stream.h"

namespace gpuloom {
namespace {

using Params = CUstreamBatchMemOpParams;

constexpr unsigned kMaxOperations = 256;  // CUDA's own limit

bool IsWord(CUdeviceptr address, uint32_t word_bytes) {
  KnownMemory found;
  return address % word_bytes == 0 && FindMemory(address, word_bytes, &found);
}

bool IsWide(const Params& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
         operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

CUresult Judge(const Params& operation) {
  const uint32_t word_bytes = IsWide(operation) ? 8 : 4;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      // Also NO_MEMORY_BARRIER, which is for devices with the first version only.
      if (operation.writeValue.flags != CU_STREAM_WRITE_VALUE_DEFAULT) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return IsWord(operation.writeValue.address, word_bytes) ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
      const unsigned flags = operation.waitValue.flags;
      // CAN_FLUSH_REMOTE_WRITES is 0.
      if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      return flags <= CU_STREAM_WAIT_VALUE_NOR && IsWord(operation.waitValue.address, word_bytes)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    }
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

CUresult Submit(CUstream handle, DefaultStream null_means, unsigned count, Params* operations,
                unsigned flags) {
  if (const CUresult result = NeedContext(); result != CUDA_SUCCESS) return result;
  wire::StreamId stream;
  if (const CUresult result = FindStream(handle, null_means, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (count > kMaxOperations || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (operations == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult result = Judge(operations[i]); result != CUDA_SUCCESS) return result;
  }
  CUresult captured;
  if (Records(stream, &captured, [&](graph::NodeParams* node) {
        return graph::MakeBatch({PrimaryContext(), count, operations, 0}, node);
      })) {
    return captured;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult result = Post(stream, operations[i]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Write(CUstream stream, DefaultStream null_means, CUstreamBatchMemOpType type,
               CUdeviceptr address, uint64_t value, unsigned flags) {
  Params operation = {};
  operation.writeValue.operation = type;
  operation.writeValue.address = address;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return Submit(stream, null_means, 1, &operation, 0);
}

CUresult Wait(CUstream stream, DefaultStream null_means, CUstreamBatchMemOpType type,
              CUdeviceptr address, uint64_t value, unsigned flags) {
  Params operation = {};
  operation.waitValue.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return Submit(stream, null_means, 1, &operation, 0);
}

constexpr DefaultStream kLegacy = DefaultStream::kLegacy;
constexpr DefaultStream kPerThread = DefaultStream::kPerThread;

constexpr CUstreamBatchMemOpType kWrite32 = CU_STREAM_MEM_OP_WRITE_VALUE_32;
constexpr CUstreamBatchMemOpType kWrite64 = CU_STREAM_MEM_OP_WRITE_VALUE_64;
constexpr CUstreamBatchMemOpType kWait32 = CU_STREAM_MEM_OP_WAIT_VALUE_32;
constexpr CUstreamBatchMemOpType kWait64 = CU_STREAM_MEM_OP_WAIT_VALUE_64;

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  return Write(stream, kLegacy, kWrite32, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  return Write(stream, kLegacy, kWrite64, address, value, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return Wait(stream, kLegacy, kWait32, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  return Wait(stream, kLegacy, kWait64, address, value, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned flags) {
  return Submit(stream, kLegacy, count, operations, flags);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned flags) {
  return Write(stream, kPerThread, kWrite32, address, value, flags);
}
CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned flags) {
  return Write(stream, kPerThread, kWrite64, address, value, flags);
}
CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags) {
  return Wait(stream, kPerThread, kWait32, address, value, flags);
}
CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned flags) {
  return Wait(stream, kPerThread, kWait64, address, value, flags);
}
CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams* operations, unsigned flags) {
  return Submit(stream, kPerThread, count, operations, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags) {
  return Write(stream, kLegacy, kWrite32, address, value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags) {
  return Write(stream, kLegacy, kWrite64, address, value, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  return Wait(stream, kLegacy, kWait32, address, value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned flags) {
  return Wait(stream, kLegacy, kWait64, address, value, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams* operations, unsigned flags) {
  return Submit(stream, kLegacy, count, operations, flags);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
  return Write(stream, kPerThread, kWrite32, address, value, flags);
}
CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
  return Write(stream, kPerThread, kWrite64, address, value, flags);
}
CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
  return Wait(stream, kPerThread, kWait32, address, value, flags);
}
CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
  return Wait(stream, kPerThread, kWait64, address, value, flags);
}
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* operations, unsigned flags) {
  return Submit(stream, kPerThread, count, operations, flags);
}

}  // extern "C"
