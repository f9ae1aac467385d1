// SPDX-License-Identifier: Apache-2.0
// cuTensorMap*: judged by the rules that CUDA documents and written in a form of our own, which the
// machine's copies by tensor map read.
#include "agent/softgpu/exec/machine/tensor_map.h"

#include <cstring>

#include "agent/softgpu/driver/is_up_to.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

constexpr uint32_t kMaxRank = kMaxTensorRank;
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));
static_assert(uint8_t{TensorMap::kF64} == CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
static_assert(uint8_t{TensorMap::kTf32Flushed} == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);

// The arguments that tiled and im2col maps have in common.
struct Request {
  CUtensorMap* map;
  CUtensorMapDataType type;
  uint32_t rank;
  uint64_t address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion l2_promotion;
  CUtensorMapFloatOOBfill fill;
};

// Bits of an element, 0 for a type that does not exist.
uint32_t BitsOf(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 32;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 64;
    default:
      return 0;  // the 4 and 6 bit types belong to later devices than this one
  }
}

bool IsFloat(CUtensorMapDataType type) {
  return (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
}

// The alignment in bytes of the tensor's address and of its strides.
uint32_t AlignmentOf(const Request& r) {
  return r.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
}

// `inner_bytes`: what a box reads along the innermost dimension.
bool RulesHold(const Request& r, uint64_t inner_bytes) {
  if (r.map == nullptr || reinterpret_cast<uintptr_t>(r.map) % 64 != 0 || BitsOf(r.type) == 0 ||
      r.rank == 0 || r.rank > kMaxRank || r.dimensions == nullptr || r.element_strides == nullptr ||
      (r.rank > 1 && r.strides == nullptr)) {
    return false;
  }
  if (!IsUpTo(CU_TENSOR_MAP_INTERLEAVE_32B, r.interleave) ||
      !IsUpTo(CU_TENSOR_MAP_SWIZZLE_128B, r.swizzle) ||
      !IsUpTo(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, r.l2_promotion) ||
      !IsUpTo(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA, r.fill)) {
    return false;
  }
  if (r.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && r.rank < 3) return false;
  const uint32_t alignment = AlignmentOf(r);
  if (r.address % alignment != 0) return false;
  for (uint32_t i = 0; i < r.rank; ++i) {
    // CUDA's limits: extents up to 2^32 elements, strides below 2^40 bytes, steps from 1 to 8.
    if (r.dimensions[i] == 0 || r.dimensions[i] > uint64_t{1} << 32) return false;
    if (i + 1 < r.rank && (r.strides[i] % alignment != 0 || r.strides[i] >= uint64_t{1} << 40)) {
      return false;
    }
    // The innermost dimension's step is ignored without interleaving.
    const bool counts = i != 0 || r.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (counts && (r.element_strides[i] == 0 || r.element_strides[i] > 8)) return false;
  }
  if (r.interleave == CU_TENSOR_MAP_INTERLEAVE_32B && r.swizzle != CU_TENSOR_MAP_SWIZZLE_32B) {
    return false;
  }
  if (r.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) {
    constexpr uint64_t kSpans[] = {UINT64_MAX, 32, 64, 128};  // by CUtensorMapSwizzle
    if (inner_bytes % 16 != 0 || inner_bytes > kSpans[r.swizzle]) return false;
  }
  return r.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || IsFloat(r.type);
}

// A tile's box, or the corners, channels and pixels of im2col, which no copy uses.
CUresult Write(const Request& r, const cuuint32_t* box) {
  TensorMap form = {};
  form.magic = TensorMap::kMagic;
  form.mode = box != nullptr ? TensorMap::kTiled : TensorMap::kIm2col;
  form.address = r.address;
  for (uint32_t i = 0; i < r.rank; ++i) {
    form.dimensions[i] = r.dimensions[i];
    form.box[i] = box == nullptr ? uint16_t{0} : static_cast<uint16_t>(box[i]);
    if (i + 1 < r.rank) form.strides[i] = r.strides[i];
    // The innermost dimension is taken whole unless it is interleaved.
    const bool counts = i != 0 || r.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    form.element_strides[i] = counts ? static_cast<uint8_t>(r.element_strides[i]) : uint8_t{1};
  }
  form.type = static_cast<uint8_t>(r.type);
  form.rank = static_cast<uint8_t>(r.rank);
  form.interleave = static_cast<uint8_t>(r.interleave);
  form.swizzle = static_cast<uint8_t>(r.swizzle);
  form.fills_with_nan = r.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ? 1 : 0;
  form.alignment = static_cast<uint8_t>(AlignmentOf(r));
  std::memset(r.map, 0, sizeof(*r.map));
  std::memcpy(r.map, &form, sizeof(form));
  return CUDA_SUCCESS;
}

// The bounding box of im2col, by rank: how far a corner may lie.
bool CornersHold(uint32_t rank, const int* lower, const int* upper, const cuuint64_t* dimensions) {
  constexpr int kReach[] = {32768, 128, 16};  // ranks 3, 4, 5
  const int reach = kReach[rank - 3];
  for (uint32_t i = 0; i + 2 < rank; ++i) {
    for (const int corner : {lower[i], upper[i]}) {
      if (corner < -reach || corner >= reach) return false;
    }
    // Corners are given from D to W, dimensions from C outwards; the box must not be empty.
    const auto extent = static_cast<int64_t>(dimensions[i + 1]);
    if (extent + upper[i] - lower[i] <= 0) return false;
  }
  return true;
}

}  // namespace

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                CUtensorMapFloatOOBfill fill) {
  CUDA_RETURN_IF_ERROR(Ready());
  const Request request = {map,
                           type,
                           rank,
                           reinterpret_cast<uint64_t>(address),
                           dimensions,
                           strides,
                           element_strides,
                           interleave,
                           swizzle,
                           l2_promotion,
                           fill};
  if (box == nullptr || rank == 0 || rank > kMaxRank ||
      !RulesHold(request, uint64_t{box[0]} * BitsOf(type) / 8)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (uint32_t i = 0; i < rank; ++i) {
    if (box[i] == 0 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
  }
  return Write(request, box);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* dimensions,
                                 const cuuint64_t* strides, const int* lower_corner,
                                 const int* upper_corner, cuuint32_t channels_per_pixel,
                                 cuuint32_t pixels_per_column, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2_promotion,
                                 CUtensorMapFloatOOBfill fill) {
  CUDA_RETURN_IF_ERROR(Ready());
  const Request request = {map,
                           type,
                           rank,
                           reinterpret_cast<uint64_t>(address),
                           dimensions,
                           strides,
                           element_strides,
                           interleave,
                           swizzle,
                           l2_promotion,
                           fill};
  if (rank < 3 || rank > kMaxRank || lower_corner == nullptr || upper_corner == nullptr ||
      !RulesHold(request, uint64_t{channels_per_pixel} * BitsOf(type) / 8) ||
      !CornersHold(rank, lower_corner, upper_corner, dimensions) || channels_per_pixel == 0 ||
      channels_per_pixel > 256 || pixels_per_column == 0 || pixels_per_column > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Write(request, nullptr);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A map is opaque: one that was not made here, or is damaged, has no magic number.
  TensorMap form;
  std::memcpy(&form, map, sizeof(form));
  if (form.magic != TensorMap::kMagic || form.alignment == 0 ||
      reinterpret_cast<uint64_t>(address) % form.alignment != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  form.address = reinterpret_cast<uint64_t>(address);
  std::memcpy(map, &form, sizeof(form));
  return CUDA_SUCCESS;
}

}  // extern "C"
