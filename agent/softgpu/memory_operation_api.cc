// cuStreamWriteValue*, cuStreamWaitValue*, cuStreamBatchMemOp: the first version, the second, and
// both with _ptsz for the thread's own default stream. The versions differ in flags that only
// matter to a real GPU.
#include <utility>
#include <vector>

#include "agent/softgpu/context.h"
#include "agent/softgpu/graph_capture.h"
#include "agent/softgpu/memory_operation.h"

namespace graph = gpuloom::graph;
using namespace gpuloom::softgpu;  // NOLINT: this file only defines CUDA's C functions

namespace {

using Kind = MemoryOperation::Kind;

constexpr bool kLegacy = false;
constexpr bool kPerThread = true;
constexpr bool kNarrow = false;
constexpr bool kWide = true;

// Back to CUDA's form, which a graph keeps.
CUresult RecordOperations(const std::vector<MemoryOperation>& operations, Context& context,
                          graph::NodeParams* node) {
  std::function<void()> unused;
  const CUresult judged = Prepare(operations, unused);
  if (judged != CUDA_SUCCESS) return judged;
  std::vector<CUstreamBatchMemOpParams> params;
  for (const MemoryOperation& operation : operations) {
    CUstreamBatchMemOpParams one = {};
    switch (operation.kind) {
      case Kind::kBarrier:
        one.operation = CU_STREAM_MEM_OP_BARRIER;
        break;
      case Kind::kWait:
        one.operation =
            operation.wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        one.waitValue.address = operation.address;
        one.waitValue.value64 = operation.value;
        one.waitValue.flags = operation.condition;
        break;
      case Kind::kWrite:
        one.operation =
            operation.wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        one.writeValue.address = operation.address;
        one.writeValue.value64 = operation.value;
        break;
    }
    params.push_back(one);
  }
  return graph::MakeBatch(
      {context.handle(), static_cast<unsigned>(params.size()), params.data(), 0}, node);
}

CUresult SubmitTo(CUstream handle, bool per_thread, std::vector<MemoryOperation> operations) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result != CUDA_SUCCESS) return result;
  const auto stream = FindStream(*context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult captured = CUDA_SUCCESS;
  if (Records(*stream, &captured, [&](graph::NodeParams* node) {
        return RecordOperations(operations, *context, node);
      })) {
    return captured;
  }
  return Submit(*stream, std::move(operations));
}

CUresult Write(CUstream stream, bool per_thread, CUdeviceptr address, uint64_t value, bool wide,
               unsigned flags) {
  // Also for NO_MEMORY_BARRIER, as an H200 does.
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return SubmitTo(stream, per_thread, {{Kind::kWrite, address, value, wide, 0}});
}

CUresult Wait(CUstream stream, bool per_thread, CUdeviceptr address, uint64_t value, bool wide,
              unsigned flags) {
  // Flushing remote writes is not offered (CAN_FLUSH_REMOTE_WRITES is 0).
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return SubmitTo(stream, per_thread, {{Kind::kWait, address, value, wide, flags}});
}

}  // namespace

CUresult gpuloom::softgpu::Describe(const CUstreamBatchMemOpParams* params, unsigned count,
                                    std::vector<MemoryOperation>& operations) {
  // 256 is CUDA's own limit.
  if ((params == nullptr && count != 0) || count > 256) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (params[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        operations.push_back({Kind::kWait, params[i].waitValue.address, params[i].waitValue.value,
                              kNarrow, params[i].waitValue.flags});
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        operations.push_back({Kind::kWait, params[i].waitValue.address, params[i].waitValue.value64,
                              kWide, params[i].waitValue.flags});
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        operations.push_back(
            {Kind::kWrite, params[i].writeValue.address, params[i].writeValue.value, kNarrow, 0});
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        operations.push_back(
            {Kind::kWrite, params[i].writeValue.address, params[i].writeValue.value64, kWide, 0});
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        operations.push_back({Kind::kBarrier, 0, 0, false, 0});
        break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

namespace {

CUresult Batch(CUstream stream, bool per_thread, unsigned count,
               const CUstreamBatchMemOpParams* params, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<MemoryOperation> operations;
  const CUresult result = Describe(params, count, operations);
  return result == CUDA_SUCCESS ? SubmitTo(stream, per_thread, std::move(operations)) : result;
}

}  // namespace

extern "C" {

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  return Write(stream, kLegacy, address, value, kNarrow, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return Wait(stream, kLegacy, address, value, kNarrow, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  return Write(stream, kLegacy, address, value, kWide, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  return Wait(stream, kLegacy, address, value, kWide, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params,
                            unsigned flags) {
  return Batch(stream, kLegacy, count, params, flags);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned flags) {
  return Write(stream, kPerThread, address, value, kNarrow, flags);
}
CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags) {
  return Wait(stream, kPerThread, address, value, kNarrow, flags);
}
CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned flags) {
  return Write(stream, kPerThread, address, value, kWide, flags);
}
CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned flags) {
  return Wait(stream, kPerThread, address, value, kWide, flags);
}
CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params,
                                 unsigned flags) {
  return Batch(stream, kPerThread, count, params, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags) {
  return Write(stream, kLegacy, address, value, kNarrow, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  return Wait(stream, kLegacy, address, value, kNarrow, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags) {
  return Write(stream, kLegacy, address, value, kWide, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned flags) {
  return Wait(stream, kLegacy, address, value, kWide, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params,
                               unsigned flags) {
  return Batch(stream, kLegacy, count, params, flags);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
  return Write(stream, kPerThread, address, value, kNarrow, flags);
}
CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
  return Wait(stream, kPerThread, address, value, kNarrow, flags);
}
CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
  return Write(stream, kPerThread, address, value, kWide, flags);
}
CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
  return Wait(stream, kPerThread, address, value, kWide, flags);
}
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* params, unsigned flags) {
  return Batch(stream, kPerThread, count, params, flags);
}

}  // extern "C"
