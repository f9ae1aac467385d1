// SPDX-License-Identifier: Apache-2.0
// Formats of arrays and textures: which exist, and how large an element is. Free of the C++ library, so that the shim
// can use it. Pure; safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Formats that CUDA has: the plain ones, and the packed and planar ones that are not offered.
constexpr bool IsArrayFormat(CUarray_format format) {
  return (format >= CU_AD_FORMAT_UNSIGNED_INT8 && format <= CU_AD_FORMAT_UNSIGNED_INT32) ||
         (format >= CU_AD_FORMAT_SIGNED_INT8 && format <= CU_AD_FORMAT_SIGNED_INT32) ||
         format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT ||
         format == CU_AD_FORMAT_UNORM_INT_101010_2 ||
         (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_SNORM_INT16X4);
}

// Size of one channel, by the number of a CUarray_format; 0 for packed, planar, compressed and unknown formats.
constexpr uint64_t ChannelBytes(uint32_t format_untrusted) {
  switch (format_untrusted) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// Size of a whole element; 0 also for channel counts other than one, two and four.
constexpr uint32_t PlainElementBytes(uint32_t format_untrusted, uint32_t channels_untrusted) {
  const bool plain = channels_untrusted == 1 || channels_untrusted == 2 || channels_untrusted == 4;
  return plain ? static_cast<uint32_t>(ChannelBytes(format_untrusted)) * channels_untrusted : 0;
}

// The most elements of a texture over linear memory. CUDA 11's runtime binds 4 GiB if the program gives no size;
// programs do not give more. (The attribute for the width is smaller, and the driver does not enforce it.)
inline constexpr uint64_t kMostLinearElements = uint64_t{1} << 32;

}  // namespace gpuloom
