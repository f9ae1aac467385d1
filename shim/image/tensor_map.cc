// SPDX-License-Identifier: Apache-2.0
// Tensor maps: encoded by the executor's driver, because only it knows their form. The latest ones
// are cached, for programs that encode the same maps again and again, for each launch.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/tensor_map_commands.h"
#include "shim/context/context.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

using Request = wire::TensorMapEncode::Request;
static_assert(sizeof(CUtensorMap) == wire::kTensorMapBytes);

// Several times what a training step of a large model encodes in each round.
constexpr uint32_t kKept = 256;

// A request and its answer. One place per hash: a new one takes the place of an old one.
struct Kept {
  bool used;
  Request request;
  uint8_t map[wire::kTensorMapBytes];
};

struct Maps {
  Lock lock;
  Kept kept[kKept] GPULOOM_GUARDED_BY(lock) = {};
};
constinit Maps maps;

// FNV-1a, by words. Requests have no padding, so equal ones have equal bytes; they are compared as
// a whole afterwards.
uint32_t SlotFor(const Request& request) {
  uint32_t words[sizeof(Request) / 4];
  memcpy(words, &request, sizeof(request));
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint32_t word : words) hash = (hash ^ word) * 0x100000001b3;
  return static_cast<uint32_t>(hash >> 32) % kKept;
}

bool Recall(const Request& request, CUtensorMap* map) {
  Holding holding(&maps.lock);
  const Kept& kept = maps.kept[SlotFor(request)];
  if (!kept.used || memcmp(&kept.request, &request, sizeof(request)) != 0) return false;
  memcpy(map, kept.map, sizeof(kept.map));
  return true;
}

void Keep(const Request& request, const uint8_t* map) {
  Holding holding(&maps.lock);
  Kept& kept = maps.kept[SlotFor(request)];
  kept.used = true;
  kept.request = request;
  memcpy(kept.map, map, sizeof(kept.map));
}

// Fills in what all three kinds have in common. Returns INVALID_VALUE for a request that cannot be
// sent.
CUresult Begin(Request* request, wire::TensorMapKind kind, const CUtensorMap* map,
               CUtensorMapDataType type, uint32_t rank, const void* address,
               const cuuint64_t* dimensions, const cuuint64_t* strides,
               const cuuint32_t* element_strides) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  // Only what CUDA asks of the pointers, and what reading the program's arrays needs. The driver
  // judges the rest.
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % 64 != 0 || rank == 0 ||
      rank > wire::kMaxTensorRank || dimensions == nullptr || element_strides == nullptr ||
      (strides == nullptr && rank > 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *request = {};
  request->kind = kind;
  request->data_type = type;
  request->rank = rank;
  request->address = reinterpret_cast<uint64_t>(address);
  for (uint32_t i = 0; i < rank; ++i) {
    request->dimensions[i] = dimensions[i];
    request->element_strides[i] = element_strides[i];
    // The innermost dimension has no stride.
    if (i + 1 < rank) request->strides_bytes[i] = strides[i];
  }
  return CUDA_SUCCESS;
}

// The same request always has the same map: it contains the address, and no state of the device.
CUresult Encode(const Request& request, CUtensorMap* map) {
  if (Recall(request, map)) return CUDA_SUCCESS;
  uint8_t bytes[wire::kTensorMapBytes];
  ReplyPayload payload = {bytes, sizeof(bytes), 0};
  wire::TensorMapEncode::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::TensorMapEncode>(request, &reply, nullptr, 0, &payload));
  // A shorter answer would leave bytes of our stack in the map.
  if (payload.size_bytes != sizeof(bytes)) return CUDA_ERROR_UNKNOWN;
  memcpy(map, bytes, sizeof(bytes));
  Keep(request, bytes);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                CUtensorMapFloatOOBfill fill) {
  Request request;
  CUDA_RETURN_IF_ERROR(Begin(&request, wire::TensorMapKind::kTiled, map, type, rank, address,
                             dimensions, strides, element_strides));
  if (box == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(request.box, box, rank * sizeof(*box));
  request.interleave = interleave;
  request.swizzle = swizzle;
  request.l2_promotion = l2_promotion;
  request.fill = fill;
  return Encode(request, map);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* dimensions,
                                 const cuuint64_t* strides, const int* lower_corner,
                                 const int* upper_corner, cuuint32_t channels_per_pixel,
                                 cuuint32_t pixels_per_column, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2_promotion,
                                 CUtensorMapFloatOOBfill fill) {
  Request request;
  CUDA_RETURN_IF_ERROR(Begin(&request, wire::TensorMapKind::kIm2col, map, type, rank, address,
                             dimensions, strides, element_strides));
  if (rank < 3 || lower_corner == nullptr || upper_corner == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The corners leave out the outermost and the innermost dimension.
  memcpy(request.lower_corner, lower_corner, (rank - 2) * sizeof(*lower_corner));
  memcpy(request.upper_corner, upper_corner, (rank - 2) * sizeof(*upper_corner));
  request.channels_per_pixel = channels_per_pixel;
  request.pixels_per_column = pixels_per_column;
  request.interleave = interleave;
  request.swizzle = swizzle;
  request.l2_promotion = l2_promotion;
  request.fill = fill;
  return Encode(request, map);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* dimensions, const cuuint64_t* strides, int lower_corner_width,
    int upper_corner_width, cuuint32_t channels_per_pixel, cuuint32_t pixels_per_column,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
    CUtensorMapFloatOOBfill fill) {
  Request request;
  CUDA_RETURN_IF_ERROR(Begin(&request, wire::TensorMapKind::kIm2colWide, map, type, rank, address,
                             dimensions, strides, element_strides));
  request.lower_corner[0] = lower_corner_width;
  request.upper_corner[0] = upper_corner_width;
  request.channels_per_pixel = channels_per_pixel;
  request.pixels_per_column = pixels_per_column;
  request.interleave = interleave;
  request.mode = mode;
  request.swizzle = swizzle;
  request.l2_promotion = l2_promotion;
  request.fill = fill;
  return Encode(request, map);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::TensorMapReplaceAddress::Request request;
  // Not cached: the answer depends on the whole of the old map.
  request.address = reinterpret_cast<uint64_t>(address);
  memcpy(request.map, map, sizeof(request.map));
  uint8_t bytes[wire::kTensorMapBytes];
  ReplyPayload payload = {bytes, sizeof(bytes), 0};
  wire::TensorMapReplaceAddress::Reply reply;
  CUDA_RETURN_IF_ERROR(
      session.Call<wire::TensorMapReplaceAddress>(request, &reply, nullptr, 0, &payload));
  if (payload.size_bytes != sizeof(bytes)) return CUDA_ERROR_UNKNOWN;
  memcpy(map, bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

}  // extern "C"
