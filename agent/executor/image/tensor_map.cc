// SPDX-License-Identifier: Apache-2.0
// Tensor maps: arithmetic of the driver on the tenant's numbers, without memory and without the
// device. Addresses are not judged: a kernel may make any address anyway, and the hardware keeps
// domains apart. The driver reads arrays of `rank` elements, so the rank is judged here.
#include "agent/executor/device/device.h"
#include "agent/executor/image/tensor_maps.h"
#include "proto/wire/tensor_map_commands.h"

namespace gpuloom::executor {
namespace {

CUresult Encode(const Driver& cuda, const wire::TensorMapEncode::Request& r, CUtensorMap* map) {
  const auto type = static_cast<CUtensorMapDataType>(r.data_type);
  const auto interleave = static_cast<CUtensorMapInterleave>(r.interleave);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(r.swizzle);
  const auto l2_promotion = static_cast<CUtensorMapL2promotion>(r.l2_promotion);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(r.fill);
  void* address = reinterpret_cast<void*>(r.address);
  // Copied, because cuda.h has other types of the same size.
  cuuint64_t dimensions[wire::kMaxTensorRank];
  cuuint64_t strides[wire::kMaxTensorRank];
  std::copy(std::begin(r.dimensions), std::end(r.dimensions), dimensions);
  std::copy(std::begin(r.strides_bytes), std::end(r.strides_bytes), strides);
  switch (r.kind) {
    case wire::TensorMapKind::kTiled:
      if (cuda.cuTensorMapEncodeTiled == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return cuda.cuTensorMapEncodeTiled(map, type, r.rank, address, dimensions, strides, r.box,
                                         r.element_strides, interleave, swizzle, l2_promotion,
                                         fill);
    case wire::TensorMapKind::kIm2col:
      if (cuda.cuTensorMapEncodeIm2col == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return cuda.cuTensorMapEncodeIm2col(map, type, r.rank, address, dimensions, strides,
                                          r.lower_corner, r.upper_corner, r.channels_per_pixel,
                                          r.pixels_per_column, r.element_strides, interleave,
                                          swizzle, l2_promotion, fill);
    case wire::TensorMapKind::kIm2colWide:
      if (cuda.cuTensorMapEncodeIm2colWide == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return cuda.cuTensorMapEncodeIm2colWide(
          map, type, r.rank, address, dimensions, strides, r.lower_corner[0], r.upper_corner[0],
          r.channels_per_pixel, r.pixels_per_column, r.element_strides, interleave,
          static_cast<CUtensorMapIm2ColWideMode>(r.mode), swizzle, l2_promotion, fill);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

std::span<const uint8_t> BytesOf(const CUtensorMap& map) {
  return {reinterpret_cast<const uint8_t*>(&map), sizeof(map)};
}

}  // namespace

void TensorMaps::On(wire::Tag<wire::TensorMapEncode>, const wire::TensorMapEncode::Request& request,
                    const wire::Record& record) {
  if (request.kind > wire::TensorMapKind::kIm2colWide || request.rank == 0 ||
      request.rank > wire::kMaxTensorRank) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  CUtensorMap map = {};
  const CUresult result = services_.device->Judge(Encode(services_.device->cuda(), request, &map));
  Reply<wire::TensorMapEncode>(CallerOf(record), result, {},
                               result == CUDA_SUCCESS ? BytesOf(map) : std::span<const uint8_t>());
}

void TensorMaps::On(wire::Tag<wire::TensorMapReplaceAddress>,
                    const wire::TensorMapReplaceAddress::Request& request,
                    const wire::Record& record) {
  CUtensorMap map = {};
  std::memcpy(&map, request.map, sizeof(map));
  const Driver& cuda = services_.device->cuda();
  // The 128 bytes are the tenant's, and the driver only writes an address into its copy.
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (cuda.cuTensorMapReplaceAddress != nullptr) {
    result = services_.device->Judge(
        cuda.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(request.address)));
  }
  Reply<wire::TensorMapReplaceAddress>(
      CallerOf(record), result, {},
      result == CUDA_SUCCESS ? BytesOf(map) : std::span<const uint8_t>());
}

}  // namespace gpuloom::executor
