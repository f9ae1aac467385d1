// SPDX-License-Identifier: Apache-2.0
#include "shim/graph/graph_staging.h"

#include <stdlib.h>
#include <string.h>

#include "shim/memory/host_arena.h"
#include "shim/memory/memory.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// From the box's first byte to behind its last. Returns false if that is no size, or reaches beyond
// all addresses.
bool SpanOf(const Box& box, const BoxEnd& end, uint64_t* span) {
  uint64_t slices, rows;
  return !__builtin_mul_overflow(box.depth - 1, end.rows, &slices) &&
         !__builtin_add_overflow(slices, box.height - 1, &rows) &&
         !__builtin_mul_overflow(rows, end.pitch_bytes, span) &&
         !__builtin_add_overflow(*span, box.width_bytes, span) && *span + end.address >= *span;
}

// As for copies outside of graphs (block_copy.cc), except that registered memory counts as
// pageable, wherever its pages are: the graph may outlive the registration.
CUresult Judge(const Box& box, CUmemorytype type, BoxEnd* end) {
  if (type == CU_MEMORYTYPE_ARRAY) {
    return end->array == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  uint64_t span;
  if (end->address == 0 || !SpanOf(box, *end, &span)) return CUDA_ERROR_INVALID_VALUE;
  KnownMemory found;
  if (FindMemory(end->address, span, &found)) {
    end->host = IsInArena(found);
    return CUDA_SUCCESS;
  }
  if (type == CU_MEMORYTYPE_DEVICE || FindMemory(end->address, 1, &found) ||
      session.device_range().Contains(end->address, 1) ||
      session.host_range().Contains(end->address, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  end->host = true;
  end->pageable = true;
  return CUDA_SUCCESS;
}

// An address that overflows here is some other address, which Judge judges like any.
BoxEnd EndOf(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, size_t x_bytes,
             size_t y, size_t z, size_t pitch, size_t height, const CUDA_MEMCPY3D& copy) {
  BoxEnd end = {};
  if (type == CU_MEMORYTYPE_ARRAY) {
    end.array = array;
    end.x_bytes = x_bytes;
    end.y = y;
    end.z = z;
    return end;
  }
  // A pitch of 0 means that rows follow each other without a gap; a height of 0 means the same for
  // slices.
  end.pitch_bytes = pitch != 0 ? pitch : x_bytes + copy.WidthInBytes;
  end.rows = height != 0 ? height : y + copy.Height;
  const uint64_t base =
      type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : uint64_t{device};
  // Judge refuses an address of 0, and an offset must not hide it.
  if (base == 0) return end;
  end.address = base + (z * end.rows + y) * end.pitch_bytes + x_bytes;
  return end;
}

// Runs on the thread of host functions: both sides are memory of this process.
void Move(const Box& box) {
  for (uint64_t z = 0; z < box.depth; ++z) {
    for (uint64_t y = 0; y < box.height; ++y) {
      const uint64_t to = box.to.address + (z * box.to.rows + y) * box.to.pitch_bytes;
      const uint64_t from = box.from.address + (z * box.from.rows + y) * box.from.pitch_bytes;
      memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), box.width_bytes);
    }
  }
}

}  // namespace

CUresult ReadBox(const CUDA_MEMCPY3D& copy, Box* box) {
  *box = {};
  box->width_bytes = copy.WidthInBytes;
  box->height = copy.Height;
  box->depth = copy.Depth;
  if (box->width_bytes == 0 || box->height == 0 || box->depth == 0) return CUDA_ERROR_INVALID_VALUE;
  box->from = EndOf(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray,
                    copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight, copy);
  box->to = EndOf(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstXInBytes,
                  copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight, copy);
  const CUresult result = Judge(*box, copy.srcMemoryType, &box->from);
  return result != CUDA_SUCCESS ? result : Judge(*box, copy.dstMemoryType, &box->to);
}

CUresult MakeStaged(Box* box, StagedCopy** out) {
  auto* copy = static_cast<StagedCopy*>(calloc(1, sizeof(StagedCopy)));
  if (copy == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  copy->box = *box;
  // If both sides are pageable, the device takes no part, and no staging is needed.
  if (!box->to.pageable || !box->from.pageable) {
    uint64_t size_bytes;
    if (__builtin_mul_overflow(box->width_bytes, box->height, &size_bytes) ||
        __builtin_mul_overflow(size_bytes, box->depth, &size_bytes)) {
      free(copy);
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = TakePinned(size_bytes, &copy->staging);
    if (result != CUDA_SUCCESS) {
      free(copy);
      return result;
    }
    BoxEnd staging = {};
    staging.host = true;
    staging.address = copy->staging;
    staging.pitch_bytes = box->width_bytes;
    staging.rows = box->height;
    // The staging memory takes the pageable end's place in the device's copy, and the device's
    // end's place in the host function's.
    if (box->from.pageable) {
      copy->box.to = box->from = staging;
    } else {
      copy->box.from = box->to = staging;
    }
  }
  *out = copy;
  return CUDA_SUCCESS;
}

void RunStaged(void* staged_copy) { Move(static_cast<const StagedCopy*>(staged_copy)->box); }

void FreeStaged(StagedCopy* copy) {
  if (copy->staging != 0) GivePinned(copy->staging);
  free(copy);
}

}  // namespace gpuloom
