// SPDX-License-Identifier: Apache-2.0
// Copies in batches. A batch has no order of its own, so its copies go one after the other; what
// "asynchronous" and "during the call" mean for each source is what plain copies do anyway: a
// pageable source has been read when the call returns.
//
// Compiled into the shim and into the software driver, on each one's own plain copies.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/batch_copy.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom {
namespace {

// The first version of these functions reports this if no particular copy was wrong.
constexpr size_t kNoneFailed = SIZE_MAX;

bool IsOrder(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// CUDA has no batches on the legacy default stream.
CUresult JudgeBatchStream(CUstream stream, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(graph::CheckReady());
  const bool legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && null_means == DefaultStream::kLegacy);
  return legacy ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// attributes[i] holds from copy first[i] on. *failed: the copy that was wrong; those before it have
// been sent.
CUresult Batch(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes, size_t count,
               const CUmemcpyAttributes* attributes, const size_t* first, size_t attribute_count,
               CUstream stream, DefaultStream null_means, size_t* failed) {
  *failed = kNoneFailed;
  CUDA_RETURN_IF_ERROR(JudgeBatchStream(stream, null_means));
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || attributes == nullptr ||
      first == nullptr || attribute_count == 0 || attribute_count > count || first[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < attribute_count; ++i) {
    if (!IsOrder(attributes[i].srcAccessOrder) || first[i] >= count ||
        (i > 0 && first[i] <= first[i - 1])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = api::cuMemcpyAsync(to[i], from[i], sizes[i], stream, null_means);
    if (result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// Bytes in an element of an operand; 1 for a pointer, 0 if there is no such operand.
uint32_t ElementBytesOf(const CUmemcpy3DOperand& operand) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) return 1;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 0;
  return ArrayElementBytes(operand.op.array.array);
}

// One copy of a 3-D batch as a plain one, which counts in bytes where a batch counts in elements.
// Between a pointer and an array the array's elements count.
CUresult OneOf(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* copy) {
  const uint32_t from_bytes = ElementBytesOf(op.src);
  const uint32_t to_bytes = ElementBytesOf(op.dst);
  const bool from_array = op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  const bool to_array = op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  if (from_bytes == 0 || to_bytes == 0 || !IsOrder(op.srcAccessOrder) || op.extent.width == 0 ||
      op.extent.height == 0 || op.extent.depth == 0 ||
      (from_array && to_array && from_bytes != to_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t element_bytes = from_array ? from_bytes : to_bytes;
  *copy = {};
  copy->Height = op.extent.height;
  copy->Depth = op.extent.depth;
  if (__builtin_mul_overflow(op.extent.width, element_bytes, &copy->WidthInBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (from_array) {
    copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->srcArray = op.src.op.array.array;
    copy->srcXInBytes = op.src.op.array.offset.x * element_bytes;
    copy->srcY = op.src.op.array.offset.y;
    copy->srcZ = op.src.op.array.offset.z;
  } else {
    const auto& source = op.src.op.ptr;
    if ((source.rowLength != 0 && source.rowLength < op.extent.width) ||
        (source.layerHeight != 0 && source.layerHeight < op.extent.height)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    copy->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->srcDevice = source.ptr;
    copy->srcPitch = source.rowLength * element_bytes;
    copy->srcHeight = source.layerHeight;
  }
  if (to_array) {
    copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->dstArray = op.dst.op.array.array;
    copy->dstXInBytes = op.dst.op.array.offset.x * element_bytes;
    copy->dstY = op.dst.op.array.offset.y;
    copy->dstZ = op.dst.op.array.offset.z;
  } else {
    const auto& destination = op.dst.op.ptr;
    if ((destination.rowLength != 0 && destination.rowLength < op.extent.width) ||
        (destination.layerHeight != 0 && destination.layerHeight < op.extent.height)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->dstDevice = destination.ptr;
    copy->dstPitch = destination.rowLength * element_bytes;
    copy->dstHeight = destination.layerHeight;
  }
  return CUDA_SUCCESS;
}

CUresult Batch3D(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
                 CUstream stream, DefaultStream null_means, size_t* failed) {
  *failed = kNoneFailed;
  CUDA_RETURN_IF_ERROR(JudgeBatchStream(stream, null_means));
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    CUDA_MEMCPY3D copy;
    CUresult result = OneOf(operations[i], &copy);
    if (result == CUDA_SUCCESS) {
      result = api::cuMemcpy3DAsync_v2(&copy, stream, null_means);
    }
    if (result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* first,
                                    size_t attribute_count, CUstream stream,
                                    DefaultStream null_means) {
  size_t failed;
  return Batch(to, from, sizes, count, attributes, first, attribute_count, stream, null_means,
               &failed);
}
CUresult api::cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* first,
                                 size_t attribute_count, size_t* failed, CUstream stream,
                                 DefaultStream null_means) {
  size_t which;
  return Batch(to, from, sizes, count, attributes, first, attribute_count, stream, null_means,
               failed != nullptr ? failed : &which);
}

CUresult api::cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                                      unsigned long long flags, CUstream stream,
                                      DefaultStream null_means) {
  size_t failed;
  return Batch3D(count, operations, flags, stream, null_means, &failed);
}
CUresult api::cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                                   unsigned long long flags, CUstream stream,
                                   DefaultStream null_means) {
  size_t which;
  return Batch3D(count, operations, flags, stream, null_means, failed != nullptr ? failed : &which);
}
