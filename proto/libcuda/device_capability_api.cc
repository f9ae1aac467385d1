// SPDX-License-Identifier: Apache-2.0
// Questions about a device that follow from its attributes: the widest texture on linear memory, and
// which atomic operations the links to the host and to other devices do.
//
// Compiled into the shim and into the software driver.
#include "proto/cuda/array_format.h"
#include "proto/cuda/cuda_all.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom {
namespace {

// A linear texture spans at most 2^32 bytes and 2^30 elements, on an H200 and for years before.
constexpr uint64_t kMaxLinearBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxLinearElements = uint64_t{1} << 30;

// Formats that imply the number of channels, with the size of an element, or of a block if
// compressed. As reported for an H200.
struct WholeFormat {
  CUarray_format format;
  uint8_t channels;
  uint8_t element_bytes;
};
constexpr WholeFormat kWholeFormats[] = {
    {CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4},
    {CU_AD_FORMAT_BC1_UNORM, 4, 8},
    {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 8},
    {CU_AD_FORMAT_BC2_UNORM, 4, 16},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 16},
    {CU_AD_FORMAT_BC3_UNORM, 4, 16},
    {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 16},
    {CU_AD_FORMAT_BC4_UNORM, 1, 8},
    {CU_AD_FORMAT_BC4_SNORM, 1, 8},
    {CU_AD_FORMAT_BC5_UNORM, 2, 16},
    {CU_AD_FORMAT_BC5_SNORM, 2, 16},
    {CU_AD_FORMAT_BC6H_UF16, 3, 16},
    {CU_AD_FORMAT_BC6H_SF16, 3, 16},
    {CU_AD_FORMAT_BC7_UNORM, 4, 16},
    {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 16},
    {CU_AD_FORMAT_P010, 3, 4},
    {CU_AD_FORMAT_P016, 3, 4},
    {CU_AD_FORMAT_NV12, 3, 4},
    {CU_AD_FORMAT_NV16, 3, 4},
    {CU_AD_FORMAT_P210, 3, 4},
    {CU_AD_FORMAT_P216, 3, 4},
    {CU_AD_FORMAT_YUY2, 4, 4},
    {CU_AD_FORMAT_Y210, 2, 4},
    {CU_AD_FORMAT_Y216, 2, 4},
    {CU_AD_FORMAT_AYUV, 4, 4},
    {CU_AD_FORMAT_Y410, 1, 4},
    {CU_AD_FORMAT_Y416, 4, 8},
    {CU_AD_FORMAT_Y444_PLANAR8, 3, 4},
    {CU_AD_FORMAT_Y444_PLANAR10, 3, 4},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 4},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 4},
    {CU_AD_FORMAT_UNORM_INT8X1, 1, 1},
    {CU_AD_FORMAT_UNORM_INT8X2, 2, 2},
    {CU_AD_FORMAT_UNORM_INT8X4, 4, 4},
    {CU_AD_FORMAT_UNORM_INT16X1, 1, 2},
    {CU_AD_FORMAT_UNORM_INT16X2, 2, 4},
    {CU_AD_FORMAT_UNORM_INT16X4, 4, 8},
    {CU_AD_FORMAT_SNORM_INT8X1, 1, 1},
    {CU_AD_FORMAT_SNORM_INT8X2, 2, 2},
    {CU_AD_FORMAT_SNORM_INT8X4, 4, 4},
    {CU_AD_FORMAT_SNORM_INT16X1, 1, 2},
    {CU_AD_FORMAT_SNORM_INT16X2, 2, 4},
    {CU_AD_FORMAT_SNORM_INT16X4, 4, 8},
};

// Returns 0 if there are no such elements.
uint64_t ElementBytes(CUarray_format format, unsigned channels) {
  for (const WholeFormat& whole : kWholeFormats) {
    if (whole.format == format) return whole.channels == channels ? whole.element_bytes : 0;
  }
  return PlainElementBytes(format, channels);
}

// Returns NOT_INITIALIZED or INVALID_DEVICE if the device cannot be asked.
CUresult JudgeDevice(CUdevice device) {
  int warp;
  return cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
}

// What every link that supports atomics supports at least.
unsigned AtomicsOf(CUatomicOperation operation) {
  constexpr unsigned kIntegers = CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_SCALAR_32;
  switch (operation) {
    case CU_ATOMIC_OPERATION_INTEGER_ADD:
    case CU_ATOMIC_OPERATION_INTEGER_MIN:
    case CU_ATOMIC_OPERATION_INTEGER_MAX:
      return kIntegers | CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_SCALAR_64;
    case CU_ATOMIC_OPERATION_INTEGER_INCREMENT:
    case CU_ATOMIC_OPERATION_INTEGER_DECREMENT:
      return kIntegers;
    case CU_ATOMIC_OPERATION_AND:
    case CU_ATOMIC_OPERATION_OR:
    case CU_ATOMIC_OPERATION_XOR:
    case CU_ATOMIC_OPERATION_EXCHANGE:
    case CU_ATOMIC_OPERATION_CAS:
      return kIntegers | CU_ATOMIC_CAPABILITY_SCALAR_64;
    default:
      return 0;
  }
}

// The real driver looks at what it is given before the device.
CUresult JudgeQuestion(const unsigned* capabilities, const CUatomicOperation* operations,
                       unsigned count, CUdevice device) {
  const CUresult result = JudgeDevice(device);
  if (result == CUDA_ERROR_NOT_INITIALIZED) return result;
  if (capabilities == nullptr || operations == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return result;
}

CUresult ReportAtomics(unsigned* capabilities, const CUatomicOperation* operations, unsigned count,
                       bool link_has_atomics) {
  for (unsigned i = 0; i < count; ++i) {
    if (static_cast<unsigned>(operations[i]) >= CU_ATOMIC_OPERATION_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    capabilities[i] = link_has_atomics ? AtomicsOf(operations[i]) : 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format format, unsigned channels,
                                            CUdevice device) {
  const CUresult result = JudgeDevice(device);
  if (result == CUDA_ERROR_NOT_INITIALIZED) return result;
  const uint64_t element_bytes = ElementBytes(format, channels);
  if (width == nullptr || element_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  const uint64_t elements = kMaxLinearBytes / element_bytes;
  *width = elements < kMaxLinearElements ? elements : kMaxLinearElements;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned* capabilities,
                                           const CUatomicOperation* operations, unsigned count,
                                           CUdevice device) {
  CUDA_RETURN_IF_ERROR(JudgeQuestion(capabilities, operations, count, device));
  int atomics = 0;
  CUDA_RETURN_IF_ERROR(
      cuDeviceGetAttribute(&atomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, device));
  return ReportAtomics(capabilities, operations, count, atomics != 0);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned* capabilities,
                                          const CUatomicOperation* operations, unsigned count,
                                          CUdevice source, CUdevice destination) {
  CUDA_RETURN_IF_ERROR(JudgeQuestion(capabilities, operations, count, source));
  CUDA_RETURN_IF_ERROR(JudgeDevice(destination));
  if (source == destination) return CUDA_ERROR_INVALID_DEVICE;
  int atomics = 0;
  CUDA_RETURN_IF_ERROR(cuDeviceGetP2PAttribute(
      &atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, source, destination));
  return ReportAtomics(capabilities, operations, count, atomics != 0);
}

}  // extern "C"
