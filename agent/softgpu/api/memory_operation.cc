// SPDX-License-Identifier: Apache-2.0
// A stream's own writes of words and waits for words: what proto/libcuda/memory_operation_api.cc asks of the
// software driver.
#include "agent/softgpu/driver/memory_operation.h"

#include <utility>
#include <vector>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/memory_operation.h"

namespace gpuloom {
namespace softgpu {
namespace {

using Kind = MemoryOperation::Kind;

constexpr bool kNarrow = false;
constexpr bool kWide = true;

}  // namespace

// Only the form is checked here; addresses and conditions are checked where they are used (Prepare).
CUresult Describe(const CUstreamBatchMemOpParams* params, unsigned count,
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
        // This is for writes that other devices on the bus make (GPUDirect RDMA), which is not offered.
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

CUresult JudgeMemoryOperationStream(CUstream handle, DefaultStream null_means) {
  softgpu::Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(softgpu::RequireContext(context));
  return softgpu::FindStream(*context, handle, null_means) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                                      : CUDA_SUCCESS;
}

CUresult SubmitMemoryOperations(CUstream handle, DefaultStream null_means, unsigned count,
                                CUstreamBatchMemOpParams* operations) {
  softgpu::Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(softgpu::RequireContext(context));
  const auto stream = softgpu::FindStream(*context, handle, null_means);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<softgpu::MemoryOperation> described;
  std::function<void()> unused;
  // Judged before it is captured: a node with a wrong operation would fail only at instantiation.
  CUDA_RETURN_IF_ERROR(softgpu::Describe(operations, count, described));
  CUDA_RETURN_IF_ERROR(softgpu::Prepare(described, unused));
  CUresult captured = CUDA_SUCCESS;
  if (softgpu::Records(*stream, &captured, [&](graph::NodeParams* node) {
        return graph::MakeBatch({context->handle(), count, operations, 0}, node);
      })) {
    return captured;
  }
  return softgpu::Submit(*stream, std::move(described));
}

}  // namespace gpuloom
