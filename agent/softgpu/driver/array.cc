// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/array.h"

#include <algorithm>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/registry.h"
#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/batch_copy.h"

namespace gpuloom::softgpu {
namespace {

// With either, the third dimension counts layers or faces, and is not halved from level to level.
constexpr unsigned kLayers = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;

uint32_t AtLeastOne(size_t n) { return n == 0 ? 1 : static_cast<uint32_t>(n); }

// CUDA's rules for descriptors: INVALID_VALUE for what CUDA knows to be wrong, NOT_SUPPORTED for
// what it has and this driver does not.
CUresult Judge(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  constexpr unsigned kOffered = kLayers | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER |
                                CUDA_ARRAY3D_COLOR_ATTACHMENT;
  // As large as any array's extent in device_attributes.cc; no product of three of them and an
  // element's size overflows.
  constexpr size_t kMaxExtent = 1 << 17;
  Image image;
  if (d.Width == 0 || d.Width > kMaxExtent || d.Height > kMaxExtent || d.Depth > kMaxExtent ||
      (d.NumChannels != 1 && d.NumChannels != 2 && d.NumChannels != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned kKnown = kOffered | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_SPARSE |
                              CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  if ((d.Flags & ~kKnown) != 0 || !IsArrayFormat(d.Format)) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~kOffered) != 0 || ElementBytes(d.Format, d.NumChannels, &image) == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Six square faces, or a multiple of six if layers of cubes are requested.
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    const bool right = d.Width == d.Height && d.Depth != 0 && d.Depth % 6 == 0;
    return right && (layered || d.Depth == 6) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if ((d.Flags & CUDA_ARRAY3D_LAYERED) != 0) {
    return d.Depth != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  // Depth without height has no meaning: two dimensions are width and height.
  return d.Height == 0 && d.Depth != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Dimensions that the array does not have (0) stay absent; the others never become less than one
// element.
CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR d = whole;
  const auto halved = [level](size_t n) {
    return n == 0 ? size_t{0} : std::max<size_t>(n >> level, 1);
  };
  d.Width = halved(d.Width);
  d.Height = halved(d.Height);
  if ((d.Flags & kLayers) == 0) d.Depth = halved(d.Depth);
  return d;
}

}  // namespace

// The memory is freed with the last holder: a view may outlive the handle.
Array::~Array() {
  if (image.begin != 0) {
    static_cast<void>(Memory::Instance().Free(image.begin, RegionKind::kArray));
  }
}

uint32_t ElementBytes(CUarray_format format, unsigned channels, Image* image) {
  uint32_t bytes = 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      bytes = 1;
      image->format = ElementFormat::kU8;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      bytes = 2;
      image->format = ElementFormat::kU16;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      bytes = 4;
      image->format = ElementFormat::kU32;
      break;
    case CU_AD_FORMAT_SIGNED_INT8:
      bytes = 1;
      image->format = ElementFormat::kS8;
      break;
    case CU_AD_FORMAT_SIGNED_INT16:
      bytes = 2;
      image->format = ElementFormat::kS16;
      break;
    case CU_AD_FORMAT_SIGNED_INT32:
      bytes = 4;
      image->format = ElementFormat::kS32;
      break;
    case CU_AD_FORMAT_HALF:
      bytes = 2;
      image->format = ElementFormat::kF16;
      break;
    case CU_AD_FORMAT_FLOAT:
      bytes = 4;
      image->format = ElementFormat::kF32;
      break;
    default:
      return 0;
  }
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  image->channels = channels;
  image->element_bytes = bytes * channels;
  return image->element_bytes;
}

CUresult MakeArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                   std::shared_ptr<Array>& made) {
  CUDA_RETURN_IF_ERROR(Judge(descriptor));
  auto array = std::make_shared<Array>();
  array->context = &context;
  array->descriptor = descriptor;
  Image& image = array->image;
  image.width = AtLeastOne(descriptor.Width);
  image.height = AtLeastOne(descriptor.Height);
  image.depth = AtLeastOne(descriptor.Depth);
  image.pitch_bytes =
      uint64_t{image.width} * ElementBytes(descriptor.Format, descriptor.NumChannels, &image);
  image.slice_bytes = image.pitch_bytes * image.height;
  uint64_t begin = 0;
  CUDA_RETURN_IF_ERROR(Memory::Instance().Allocate(context, RegionKind::kArray,
                                                   image.slice_bytes * image.depth, 0, begin));
  image.begin = begin;
  Registry<Array>::Instance().Add(array);
  made = std::move(array);
  return CUDA_SUCCESS;
}

CUresult MakeMipmap(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels,
                    std::shared_ptr<Mipmap>& made) {
  // As many levels as CUDA allows, down to a single element; more are cut, and one there always is.
  size_t largest = std::max(descriptor.Width, descriptor.Height);
  if ((descriptor.Flags & kLayers) == 0) largest = std::max(largest, descriptor.Depth);
  unsigned most = 1;
  while ((largest >>= 1) != 0) ++most;
  auto mipmap = std::make_shared<Mipmap>();
  mipmap->context = &context;
  mipmap->descriptor = descriptor;
  for (unsigned level = 0; level < std::clamp(levels, 1u, most); ++level) {
    std::shared_ptr<Array> array;
    const CUresult result = MakeArray(context, LevelOf(descriptor, level), array);
    if (result != CUDA_SUCCESS) {
      // Registered one by one, so they are taken back one by one.
      for (const auto& earlier : mipmap->levels) Registry<Array>::Instance().Take(earlier.get());
      return result;
    }
    array->is_level = true;
    mipmap->levels.push_back(std::move(array));
  }
  Registry<Mipmap>::Instance().Add(mipmap);
  made = std::move(mipmap);
  return CUDA_SUCCESS;
}

std::shared_ptr<Array> FindArray(CUarray handle) {
  return Registry<Array>::Instance().Find(handle);
}

// x is in bytes, and neither end may cut an element. The address is as good as any pointer to
// device memory: arrays are in the address table, too.
CUresult EndOfArray(CUarray handle, const Copy& copy, uint64_t x_bytes, uint64_t y, uint64_t z,
                    CopyEnd& end) {
  const auto array = FindArray(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Image& image = array->image;
  const auto fits = [](uint64_t begin, uint64_t size, uint64_t whole) {
    return begin <= whole && size <= whole - begin;
  };
  if (x_bytes % image.element_bytes != 0 || copy.width_bytes % image.element_bytes != 0 ||
      !fits(x_bytes, copy.width_bytes, image.pitch_bytes) || !fits(y, copy.height, image.height) ||
      !fits(z, copy.depth, image.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  end.address = image.begin + z * image.slice_bytes + y * image.pitch_bytes + x_bytes;
  end.side = Side::kDevice;
  end.pitch_bytes = image.pitch_bytes;
  end.slice_bytes = image.slice_bytes;
  return CUDA_SUCCESS;
}

// Levels are registered as arrays of the same context, so both lists are emptied.
void DestroyArraysOf(const Context& context) {
  Registry<Mipmap>::Instance().TakeIf(
      [&](const Mipmap& mipmap) { return mipmap.context == &context; });
  Registry<Array>::Instance().TakeIf([&](const Array& array) { return array.context == &context; });
}

}  // namespace gpuloom::softgpu

// Used by code that softgpu and the shim share (proto/libcuda/batch_copy.h), which knows the arrays
// of neither.
uint32_t gpuloom::ArrayElementBytes(CUarray handle) {
  const auto array = softgpu::FindArray(handle);
  return array == nullptr ? 0 : array->image.element_bytes;
}
