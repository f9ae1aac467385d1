// SPDX-License-Identifier: Apache-2.0
// Memsets of 1, 2 and 4 byte elements, of one row or many.
#include "proto/cuda/return_if_error.h"
#include "proto/wire/block_copy_commands.h"
#include "shim/context/context.h"
#include "shim/copy/block_copy.h"
#include "shim/copy/copy_side.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// `count` is of elements. CUDA wants the address aligned to the element; what follows is one
// command.
CUresult Fill(CUdeviceptr destination, uint32_t value, uint32_t element_bytes, size_t count,
              CUstream handle, DefaultStream null_means, CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  // Nothing is filled, so the address does not matter.
  if (count == 0) return CUDA_SUCCESS;
  uint64_t size_bytes;
  KnownMemory found;
  if (destination % element_bytes != 0 ||
      __builtin_mul_overflow(uint64_t{count}, uint64_t{element_bytes}, &size_bytes) ||
      !FindMemory(destination, size_bytes, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult captured;
  // Judged before it is recorded: CUDA reports a bad address in the call, not when the graph runs.
  if (Records(stream, &captured, [&](graph::NodeParams* node) {
        *node = graph::LinearFill(destination, value, element_bytes, count, PrimaryContext());
        return CUDA_SUCCESS;
      })) {
    return captured;
  }
  // Keeps the memory at the device until the command is in the ring and, if it is synchronous, done.
  const MigrationUse use(destination);
  CUDA_RETURN_IF_ERROR(use.result());
  wire::Ticket ticket{0};
  const CUresult result = session.PostOnStream<wire::Fill>(
      stream, 0,
      [&](wire::Fill::Request& request, uint8_t*) {
        request = {stream, element_bytes, value, 0, destination, count};
      },
      &ticket);
  // A memset of device memory returns at once even when it is called synchronous; one of pinned
  // host memory does not.
  if (result != CUDA_SUCCESS || timing == CopyTiming::kAsync ||
      !(IsTheProgramsToo(found) || MemoryOperationsWait())) {
    return result;
  }
  CUDA_RETURN_IF_ERROR(session.WaitFor(stream, ticket));
  return session.TakeAsyncError();
}

// `pitch_bytes` from row to row; it counts only if there are several.
CUresult FillRows(CUdeviceptr destination, size_t pitch_bytes, uint32_t value,
                  uint32_t element_bytes, size_t width, size_t height, CUstream handle,
                  DefaultStream null_means, CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  const wire::GraphFill fill = {destination, pitch_bytes, width, height, value, element_bytes};
  bool pinned;
  CUDA_RETURN_IF_ERROR(JudgeFill(fill, &pinned));
  CUresult captured;
  if (Records(stream, &captured, [&](graph::NodeParams* node) {
        *node = {};
        node->type = CU_GRAPH_NODE_TYPE_MEMSET;
        node->memset = {destination, pitch_bytes, value,           element_bytes,
                        width,       height,      PrimaryContext()};
        return CUDA_SUCCESS;
      })) {
    return captured;
  }
  const MigrationUse use(destination);
  CUDA_RETURN_IF_ERROR(use.result());
  wire::Ticket ticket{0};
  const CUresult result = session.PostOnStream<wire::FillBlock>(
      stream, 0,
      [&](wire::FillBlock::Request& request, uint8_t*) {
        request = {stream, 0, fill};
      },
      &ticket);
  if (result != CUDA_SUCCESS || timing == CopyTiming::kAsync ||
      !(pinned || MemoryOperationsWait())) {
    return result;
  }
  CUDA_RETURN_IF_ERROR(session.WaitFor(stream, ticket));
  return session.TakeAsyncError();
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count,
                            DefaultStream null_means) {
  return Fill(to, value, 1, count, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream,
                              DefaultStream null_means) {
  return Fill(to, value, 1, count, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count,
                             DefaultStream null_means) {
  return Fill(to, value, 2, count, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream,
                               DefaultStream null_means) {
  return Fill(to, value, 2, count, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count,
                             DefaultStream null_means) {
  return Fill(to, value, 4, count, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream,
                               DefaultStream null_means) {
  return Fill(to, value, 4, count, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                              size_t height, DefaultStream null_means) {
  return FillRows(to, pitch, value, 1, width, height, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                size_t height, CUstream stream, DefaultStream null_means) {
  return FillRows(to, pitch, value, 1, width, height, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                               size_t height, DefaultStream null_means) {
  return FillRows(to, pitch, value, 2, width, height, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                 size_t height, CUstream stream, DefaultStream null_means) {
  return FillRows(to, pitch, value, 2, width, height, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                               size_t height, DefaultStream null_means) {
  return FillRows(to, pitch, value, 4, width, height, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                 size_t height, CUstream stream, DefaultStream null_means) {
  return FillRows(to, pitch, value, 4, width, height, stream, null_means, CopyTiming::kAsync);
}
