// SPDX-License-Identifier: Apache-2.0
// Copies and fills of blocks. A linear side is judged as one range, from the first byte to the last; the driver judges
// whether a block lies inside an array.
#include "agent/executor/copy/block_copy.h"

#include "agent/executor/copy/copies.h"
#include "agent/executor/image/arrays.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/wire/block_copy_commands.h"

namespace gpuloom::executor {
namespace {

struct Extent {
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;
};

// The size from the first byte to the end of the last one. Returns false if it does not fit into 64 bits, or if rows or
// slices overlap: the driver could then read the numbers differently from us.
bool SpanOf(uint64_t pitch_bytes, uint64_t rows, const Extent& extent, uint64_t* span) {
  const bool many_rows = extent.height > 1 || extent.depth > 1;
  if ((many_rows && pitch_bytes < extent.width_bytes) ||
      (extent.depth > 1 && rows < extent.height)) {
    return false;
  }
  uint64_t slice_bytes = 0;
  uint64_t slices_bytes = 0;
  uint64_t rows_bytes = 0;
  return !__builtin_mul_overflow(pitch_bytes, rows, &slice_bytes) &&
         !__builtin_mul_overflow(slice_bytes, extent.depth - 1, &slices_bytes) &&
         !__builtin_mul_overflow(pitch_bytes, extent.height - 1, &rows_bytes) &&
         !__builtin_add_overflow(slices_bytes, rows_bytes, span) &&
         !__builtin_add_overflow(*span, extent.width_bytes, span);
}

// One end of a copy in the driver's terms. Its structure has them by name for source and
// destination, and so cannot be filled by one function.
struct Side {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  size_t x_bytes = 0, y = 0, z = 0;
  size_t pitch_bytes = 0, rows = 0;
};

Side SideOf(const wire::GraphCopyEnd& end, CUarray array, const wire::GraphCopy& copy) {
  Side side;
  if (end.space == wire::GraphCopySpace::kArray) {
    side.type = CU_MEMORYTYPE_ARRAY;
    side.array = array;
    side.x_bytes = end.x_bytes;
    side.y = end.y;
    side.z = end.z;
    return side;
  }
  const bool host = end.space == wire::GraphCopySpace::kHost;
  side.type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  // The driver looks at one of the two, by the type.
  side.host = reinterpret_cast<void*>(end.address);
  side.device = end.address;
  // Pitch and rows mean nothing for a single row or slice, but the driver checks them.
  side.pitch_bytes = std::max(end.pitch_bytes, copy.width_bytes);
  side.rows = std::max(end.rows, copy.height);
  return side;
}

}  // namespace

// The shim computes spans as we do, so a range that is not the session's is a breach of the
// protocol here; in a graph it is an answer (graph_judge.cc).
bool Copies::JudgeCopyEnd(const wire::GraphCopyEnd& end, const wire::GraphCopy& copy,
                          CopyEnd* judged) {
  switch (end.space) {
    case wire::GraphCopySpace::kArray: {
      const ArrayEntry* entry = arrays_->Find(wire::ArrayId{end.array});
      if (entry == nullptr || entry->array == nullptr) {
        Refuse(wire::Fatal::kBadHandle);
        return false;
      }
      *judged = {entry->array, entry->whole};
      return true;
    }
    case wire::GraphCopySpace::kDevice:
    case wire::GraphCopySpace::kHost: {
      uint64_t span = 0;
      const bool host = end.space == wire::GraphCopySpace::kHost;
      if (!SpanOf(end.pitch_bytes, end.rows, {copy.width_bytes, copy.height, copy.depth}, &span) ||
          !(host ? OwnsHost(end.address, span) : device_memory_->OwnsDevice(end.address, span))) {
        Refuse(wire::Fatal::kBadRange);
        return false;
      }
      return true;
    }
  }
  Refuse(wire::Fatal::kBadArgument);
  return false;
}

// No shim sends an empty block, and it would make extents wrap around below zero.
void Copies::On(wire::Tag<wire::CopyBlock>, const wire::CopyBlock::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const wire::GraphCopy& copy = request.copy;
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  CopyBlockWork work = {copy, {}, {}};
  if (!JudgeCopyEnd(copy.to, copy, &work.to) || !JudgeCopyEnd(copy.from, copy, &work.from)) return;
  // CUDA would keep this thread waiting (host_copy.h).
  if (IsHostCopy(copy)) return EnqueueHostCopy(*stream, record.ticket, HostBlockOf(copy));
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = std::move(work);
  streams_.Enqueue(*stream, std::move(command));
}

void Copies::On(wire::Tag<wire::FillBlock>, const wire::FillBlock::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const wire::GraphFill& fill = request.fill;
  if ((fill.element_bytes != 1 && fill.element_bytes != 2 && fill.element_bytes != 4) ||
      fill.width == 0 || fill.height == 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  uint64_t row_bytes = 0;
  uint64_t span = 0;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &row_bytes) ||
      !SpanOf(fill.pitch_bytes, fill.height, {row_bytes, fill.height, 1}, &span) ||
      !(device_memory_->OwnsDevice(fill.address, span) || OwnsHost(fill.address, span))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = FillBlockWork{fill};
  streams_.Enqueue(*stream, std::move(command));
}

CUDA_MEMCPY3D DescribeBlock(const wire::GraphCopy& block, CUarray to_array, CUarray from_array) {
  const Side to = SideOf(block.to, to_array, block);
  const Side from = SideOf(block.from, from_array, block);
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = from.x_bytes;
  copy.srcY = from.y;
  copy.srcZ = from.z;
  copy.srcMemoryType = from.type;
  copy.srcHost = from.host;
  copy.srcDevice = from.device;
  copy.srcArray = from.array;
  copy.srcPitch = from.pitch_bytes;
  copy.srcHeight = from.rows;
  copy.dstXInBytes = to.x_bytes;
  copy.dstY = to.y;
  copy.dstZ = to.z;
  copy.dstMemoryType = to.type;
  copy.dstHost = to.host;
  copy.dstDevice = to.device;
  copy.dstArray = to.array;
  copy.dstPitch = to.pitch_bytes;
  copy.dstHeight = to.rows;
  copy.WidthInBytes = block.width_bytes;
  copy.Height = block.height;
  copy.Depth = block.depth;
  return copy;
}

CUresult SubmitBlock(const Driver& cuda, const CopyBlockWork& work, CUstream stream) {
  const CUDA_MEMCPY3D copy = DescribeBlock(work.copy, work.to.array, work.from.array);
  return cuda.cuMemcpy3DAsync_v2(&copy, stream);
}

// The driver has a function for each size of element; other sizes were refused when the command was
// read.
CUresult SubmitFillBlock(const Driver& cuda, const FillBlockWork& work, CUstream stream) {
  const wire::GraphFill& fill = work.fill;
  switch (fill.element_bytes) {
    case 1:
      return cuda.cuMemsetD2D8Async(fill.address, fill.pitch_bytes,
                                    static_cast<uint8_t>(fill.value), fill.width, fill.height,
                                    stream);
    case 2:
      return cuda.cuMemsetD2D16Async(fill.address, fill.pitch_bytes,
                                     static_cast<uint16_t>(fill.value), fill.width, fill.height,
                                     stream);
    default:
      return cuda.cuMemsetD2D32Async(fill.address, fill.pitch_bytes, fill.value, fill.width,
                                     fill.height, stream);
  }
}

}  // namespace gpuloom::executor
