// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/block_copy.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/block_copy_commands.h"
#include "shim/context/context.h"
#include "shim/copy/queued_copy.h"
#include "shim/copy/staged_copy.h"
#include "shim/copy/staging.h"
#include "shim/copy/streaming_copy.h"
#include "shim/graph/capture.h"
#include "shim/image/array.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/memory/registered_memory.h"
#include "shim/session/session.h"
#include "shim/stream/host_function.h"

namespace gpuloom {
namespace {

// One side of a CUDA_MEMCPY3D. The level of detail is ignored, as the driver ignores it.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x_bytes, y, z;
  size_t pitch_bytes, rows;
};

// Both sides in one form, so that each rule is written once.
Side Source(const CUDA_MEMCPY3D& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes,
          c.srcY,          c.srcZ,    c.srcPitch,  c.srcHeight};
}
Side Destination(const CUDA_MEMCPY3D& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes,
          c.dstY,          c.dstZ,    c.dstPitch,  c.dstHeight};
}

struct Shape {
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;
};

// In this order, so that no sum overflows, whatever the program passes.
bool Fits(uint64_t begin, uint64_t size, uint64_t whole) {
  return begin <= whole && size <= whole - begin;
}

// Arrays are judged in elements: the hardware's layout is opaque, and half an element has no
// address.
CUresult JudgeArray(const Side& side, const Shape& shape, BlockEnd* end) {
  uint32_t id;
  const Array* array = FindArray(side.array, &id);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ArrayShape whole = ShapeOf(array->descriptor);
  if (side.x_bytes % whole.element_bytes != 0 || shape.width_bytes % whole.element_bytes != 0 ||
      !Fits(side.x_bytes, shape.width_bytes, whole.width_bytes) ||
      !Fits(side.y, shape.height, whole.height) || !Fits(side.z, shape.depth, whole.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *end = {BlockEnd::Kind::kArray, id, 0, 0, 0, side.x_bytes, side.y, side.z};
  return CUDA_SUCCESS;
}

// The bytes from the first to the end of the last. Returns false if that is no size.
bool SpanOf(const BlockEnd& end, const Shape& shape, uint64_t* span) {
  uint64_t slice_bytes, slices_bytes, rows_bytes;
  return !__builtin_mul_overflow(end.pitch_bytes, end.rows, &slice_bytes) &&
         !__builtin_mul_overflow(slice_bytes, shape.depth - 1, &slices_bytes) &&
         !__builtin_mul_overflow(end.pitch_bytes, shape.height - 1, &rows_bytes) &&
         !__builtin_add_overflow(slices_bytes, rows_bytes, span) &&
         !__builtin_add_overflow(*span, shape.width_bytes, span);
}

// Where the block begins: `z` slices, `y` rows and `x` bytes after the address.
bool BeginOf(const Side& side, uint64_t address, BlockEnd* end) {
  uint64_t slice_bytes, slices_bytes, rows_bytes;
  return !__builtin_mul_overflow(end->pitch_bytes, end->rows, &slice_bytes) &&
         !__builtin_mul_overflow(slice_bytes, uint64_t{side.z}, &slices_bytes) &&
         !__builtin_mul_overflow(end->pitch_bytes, uint64_t{side.y}, &rows_bytes) &&
         !__builtin_add_overflow(address, slices_bytes, &end->address) &&
         !__builtin_add_overflow(end->address, rows_bytes, &end->address) &&
         !__builtin_add_overflow(end->address, uint64_t{side.x_bytes}, &end->address);
}

// The address and the span of what is really touched: only that must belong to the program, not the
// whole of its pitched memory.
CUresult JudgeLinear(const Side& side, const Shape& shape, BlockEnd* end) {
  *end = {};
  // A pitch or height of 0 means that nothing lies between the rows or slices.
  end->pitch_bytes = side.pitch_bytes != 0 ? side.pitch_bytes : side.x_bytes + shape.width_bytes;
  end->rows = side.rows != 0 ? side.rows : side.y + shape.height;
  const uint64_t address = side.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(side.host)
                                                           : static_cast<uint64_t>(side.device);
  uint64_t span;
  if (!Fits(side.x_bytes, shape.width_bytes, end->pitch_bytes) ||
      (shape.depth > 1 && end->rows < shape.height) || address == 0 ||
      !BeginOf(side, address, end) || !SpanOf(*end, shape, &span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KnownMemory found;
  if (FindMemory(end->address, span, &found)) {
    end->kind = SideOf(found);
    return CUDA_SUCCESS;
  }
  if (uint64_t place; side.type != CU_MEMORYTYPE_DEVICE && FindMoved(end->address, span, &place)) {
    // The device reaches these pages, so kernels that are queued may read or write them.
    end->address = place;
    end->kind = BlockEnd::Kind::kPinned;
    return CUDA_SUCCESS;
  }
  // What we do not know is the program's own host memory, unless it claims to be the device's or
  // begins in a range of ours.
  end->kind = BlockEnd::Kind::kPageable;
  if (side.type == CU_MEMORYTYPE_DEVICE || end->address + span < end->address ||
      FindMemory(end->address, 1, &found) || session.device_range().Contains(end->address, 1) ||
      session.host_range().Contains(end->address, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Judge(const Side& side, const Shape& shape, BlockEnd* end) {
  switch (side.type) {
    case CU_MEMORYTYPE_ARRAY:
      return JudgeArray(side, shape, end);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return JudgeLinear(side, shape, end);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Managed memory in the arena is host memory to the executor.
wire::GraphCopyEnd OnWire(const BlockEnd& end) {
  auto space = wire::GraphCopySpace::kDevice;
  if (end.kind == BlockEnd::Kind::kPinned || end.kind == BlockEnd::Kind::kManaged) {
    space = wire::GraphCopySpace::kHost;
  }
  if (end.kind == BlockEnd::Kind::kArray) space = wire::GraphCopySpace::kArray;
  return {space, end.array, end.address, end.pitch_bytes, end.rows, end.x_bytes, end.y, end.z};
}

CUresult Post(const BlockCopy& copy, wire::StreamId stream, wire::Ticket* ticket) {
  return session.PostOnStream<wire::CopyBlock>(
      stream, 0,
      [&](wire::CopyBlock::Request& request, uint8_t*) {
        request = {stream, 0, OnWire(copy)};
      },
      ticket);
}

// A part of a block that fits into a staging buffer: some bytes of a row, some rows of a slice, or
// some slices.
struct Piece {
  uint64_t x_bytes, y, z;
  Shape shape;
};

// Walks through a block in pieces that fit into a buffer: as many whole slices as fit, else as many
// whole rows, else parts of one row. So each piece is itself a block, and one command.
class Pieces {
 public:
  explicit Pieces(const BlockCopy& copy) : whole_{copy.width_bytes, copy.height, copy.depth} {}

  bool Next(Piece* piece) {
    if (z_ == whole_.depth) return false;
    *piece = {x_, y_, z_, {whole_.width_bytes, 1, 1}};
    Shape& shape = piece->shape;
    if (whole_.width_bytes > kStagingBytes) {
      shape.width_bytes = Least(whole_.width_bytes - x_, kStagingBytes);
      x_ += shape.width_bytes;
      if (x_ < whole_.width_bytes) return true;
      x_ = 0;
      NextRow(1);
      return true;
    }
    const uint64_t rows = kStagingBytes / whole_.width_bytes;
    if (rows >= whole_.height) {
      shape.height = whole_.height;
      shape.depth = Least(whole_.depth - z_, rows / whole_.height);
      z_ += shape.depth;
      return true;
    }
    shape.height = Least(whole_.height - y_, rows);
    NextRow(shape.height);
    return true;
  }

 private:
  static uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }
  void NextRow(uint64_t rows) {
    y_ += rows;
    if (y_ < whole_.height) return;
    y_ = 0;
    ++z_;
  }

  const Shape whole_;
  uint64_t x_ = 0;
  uint64_t y_ = 0;
  uint64_t z_ = 0;
};

// A side of the copy, reduced to the piece.
BlockEnd PartOf(const BlockEnd& end, const Piece& piece) {
  BlockEnd part = end;
  if (end.kind == BlockEnd::Kind::kArray) {
    part.x_bytes += piece.x_bytes;
    part.y += piece.y;
    part.z += piece.z;
  } else {
    part.address += (piece.z * end.rows + piece.y) * end.pitch_bytes + piece.x_bytes;
  }
  return part;
}

// In a staging buffer rows and slices lie without gaps.
BlockEnd InStaging(const uint8_t* staging, const Shape& shape) {
  return {BlockEnd::Kind::kPinned,
          0,
          reinterpret_cast<uint64_t>(staging),
          shape.width_bytes,
          shape.height,
          0,
          0,
          0};
}

void CopyRow(uint8_t* to, const uint8_t* from, uint64_t size_bytes) {
  memmove(to, from, size_bytes);
}

// Copies within the tenant's own memory.
void CopyRows(const BlockEnd& to, const BlockEnd& from, const Shape& shape,
              void (*copy_row)(uint8_t*, const uint8_t*, uint64_t) = &CopyRow) {
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      copy_row(
          reinterpret_cast<uint8_t*>(to.address + (z * to.rows + y) * to.pitch_bytes),
          reinterpret_cast<const uint8_t*>(from.address + (z * from.rows + y) * from.pitch_bytes),
          shape.width_bytes);
    }
  }
}

// The pieces of a copy of which one side, the staged one, is pageable; see CopyIn and CopyOut.
class BlockPieces {
 public:
  using Piece = gpuloom::Piece;

  BlockPieces(const BlockCopy& copy, wire::StreamId stream, Staged staged)
      : copy_(copy), stream_(stream), staged_(staged), pieces_(copy) {}

  bool Next(Piece* piece) { return pieces_.Next(piece); }
  void Fill(const Piece& piece, uint8_t* staging) const {
    CopyRows(InStaging(staging, piece.shape), PartOf(copy_.from, piece), piece.shape,
             &StreamingCopy);
  }
  void Empty(const Piece& piece, const uint8_t* staging) const {
    CopyRows(PartOf(copy_.to, piece), InStaging(staging, piece.shape), piece.shape);
  }
  CUresult Post(const Piece& piece, uint8_t* staging, wire::Ticket* ticket) const {
    BlockCopy part = {PartOf(copy_.to, piece), PartOf(copy_.from, piece), piece.shape.width_bytes,
                      piece.shape.height, piece.shape.depth};
    (staged_ == Staged::kSource ? part.from : part.to) = InStaging(staging, piece.shape);
    return gpuloom::Post(part, stream_, ticket);
  }

 private:
  const BlockCopy copy_;
  const wire::StreamId stream_;
  const Staged staged_;
  Pieces pieces_;
};

// Cannot overflow: a side's span, which is no smaller, has been computed without (SpanOf).
uint64_t SizeOf(const BlockCopy& copy) { return copy.width_bytes * copy.height * copy.depth; }

CUresult FromPageable(const BlockCopy& copy, wire::StreamId stream, wire::Ticket* ticket) {
  BlockPieces pieces(copy, stream, Staged::kSource);
  return CopyIn(&pieces, stream).Run(HelpFor(SizeOf(copy)), ticket);
}

CUresult ToPageable(const BlockCopy& copy, wire::StreamId stream) {
  BlockPieces pieces(copy, stream, Staged::kDestination);
  return CopyOut(&pieces, stream).Run(HelpFor(SizeOf(copy)));
}

struct Queued {
  BlockCopy copy;
  Staged staged;
};

// On the thread of host functions, in a stream of ours.
void RunQueued(const Queued& queued, wire::StreamId on) {
  BlockPieces pieces(queued.copy, on, queued.staged);
  CopyUntilArrived(&pieces, queued.staged, on, HelpFor(SizeOf(queued.copy)));
}

// Returns false for a copy that its caller makes: a synchronous one, one of memory that is not
// registered, and any where the process can have no threads.
bool Queues(const BlockCopy& copy, wire::StreamId stream, Staged staged, CopyTiming timing,
            CUresult* result) {
  const BlockEnd& end = staged == Staged::kSource ? copy.from : copy.to;
  uint64_t span;
  if (timing == CopyTiming::kSync ||
      !SpanOf(end, {copy.width_bytes, copy.height, copy.depth}, &span) ||
      !IsRegistered(end.address, span)) {
    return false;
  }
  *result = QueueCopy<&RunQueued>(stream, Queued{copy, staged});
  return *result != CUDA_ERROR_NOT_SUPPORTED;
}

// One of four ways, by the kinds of the two sides: the caller copies; out through staging; in
// through staging; one command.
CUresult Run(const BlockCopy& copy, wire::StreamId stream, CopyTiming timing) {
  using Kind = BlockEnd::Kind;
  wire::Ticket ticket{0};
  CUresult result;
  if (CallerCopies(copy.to.kind, copy.from.kind)) {
    result = SynchronizeForTurn(stream);
    if (result == CUDA_SUCCESS) {
      CopyRows(copy.to, copy.from, {copy.width_bytes, copy.height, copy.depth});
    }
    return result;
  }
  if (copy.to.kind == Kind::kPageable) {
    if (Queues(copy, stream, Staged::kDestination, timing, &result)) return result;
    result = ToPageable(copy, stream);
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  const bool within_device = (copy.to.kind == Kind::kDevice || copy.to.kind == Kind::kArray) &&
                             (copy.from.kind == Kind::kDevice || copy.from.kind == Kind::kArray);
  if (copy.from.kind == Kind::kPageable) {
    if (Queues(copy, stream, Staged::kSource, timing, &result)) return result;
    // A synchronous copy reads its source in the stream's order, and so does every copy from registered
    // memory. Only the program's own functions and queued copies can have written to it.
    if (HostFunctionsPending() &&
        (timing == CopyTiming::kSync || IsRegistered(copy.from.address, 1))) {
      CUDA_RETURN_IF_ERROR(SynchronizeStream(stream));
    }
  }
  result = copy.from.kind == Kind::kPageable ? FromPageable(copy, stream, &ticket)
                                             : Post(copy, stream, &ticket);
  // CUDA does not wait for copies within the device either.
  if (result != CUDA_SUCCESS || timing == CopyTiming::kAsync ||
      (within_device && !MemoryOperationsWait())) {
    return result;
  }
  result = session.WaitFor(stream, ticket);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

// A copy within a capture. Pageable memory is read and written when the graph runs.
bool RecordsBlock(const CUDA_MEMCPY3D& copy, wire::StreamId stream, CopyTiming timing,
                  CUresult* result) {
  if (timing == CopyTiming::kSync) {
    *result = RefuseInCapture(stream);
    return *result != CUDA_SUCCESS;
  }
  return Records(stream, result, [&](graph::NodeParams* node) {
    *node = {};
    node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    node->memcpy = {copy, PrimaryContext()};
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult JudgeCopy(const CUDA_MEMCPY3D& from, BlockCopy* to) {
  *to = {{}, {}, from.WidthInBytes, from.Height, from.Depth};
  if (to->empty()) return CUDA_SUCCESS;
  const Shape shape = {to->width_bytes, to->height, to->depth};
  CUDA_RETURN_IF_ERROR(Judge(Destination(from), shape, &to->to));
  return Judge(Source(from), shape, &to->from);
}

wire::GraphCopy OnWire(const BlockCopy& copy) {
  return {OnWire(copy.to), OnWire(copy.from), copy.width_bytes, copy.height, copy.depth};
}

CUresult CopyBlock(const CUDA_MEMCPY3D& params, CUstream handle, DefaultStream null_means,
                   CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  BlockCopy copy;
  const CUresult result = JudgeCopy(params, &copy);
  if (result != CUDA_SUCCESS || copy.empty()) return result;
  CUresult captured;
  if (RecordsBlock(params, stream, timing, &captured)) return captured;
  const MigrationUse use(copy.to.address, copy.from.address);
  CUDA_RETURN_IF_ERROR(use.result());
  CUDA_RETURN_IF_ERROR(Run(copy, stream, timing));
  if (timing == CopyTiming::kAsync || !use.any()) return CUDA_SUCCESS;
  return session.WaitForStream(stream);  // the program may look at once
}

CUresult JudgeFill(const wire::GraphFill& fill, bool* pinned) {
  uint64_t row_bytes, rows_bytes, span;
  KnownMemory found;
  if (fill.address % fill.element_bytes != 0 ||
      __builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &row_bytes) ||
      (fill.height > 1 &&
       (fill.pitch_bytes < row_bytes || fill.pitch_bytes % fill.element_bytes != 0)) ||
      __builtin_mul_overflow(fill.pitch_bytes, fill.height - 1, &rows_bytes) ||
      __builtin_add_overflow(rows_bytes, row_bytes, &span) ||
      !FindMemory(fill.address, span, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pinned = IsTheProgramsToo(found);
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
