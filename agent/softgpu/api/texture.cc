// SPDX-License-Identifier: Apache-2.0
// cuTexObject*, cuSurfObject*: descriptions are judged by CUDA's rules and turned into what the
// machine samples (exec/machine/image.h).
#include <algorithm>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/is_up_to.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/view.h"
#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

constexpr uint64_t kAlignmentBytes = 512;  // CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
// CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT.
constexpr uint64_t kPitchAlignmentBytes = 32;

// Whether there is memory at the address is only checked when it is read.
CUresult SetLinear(const CUDA_RESOURCE_DESC& resource, TextureView& view) {
  const auto& linear = resource.res.linear;
  Image image;
  if (ElementBytes(linear.format, linear.numChannels, &image) == 0 || linear.devPtr == 0 ||
      linear.devPtr % kAlignmentBytes != 0 ||
      linear.sizeInBytes / image.element_bytes > gpuloom::kMostLinearElements) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  image.begin = linear.devPtr;
  image.width = static_cast<uint32_t>(
      std::min<uint64_t>(linear.sizeInBytes / image.element_bytes, UINT32_MAX));
  view.texture.linear_memory = true;
  view.texture.levels.push_back(image);
  return CUDA_SUCCESS;
}

// The extents and the pitch are bounded, so that no address of an element overflows.
CUresult SetPitched(const CUDA_RESOURCE_DESC& resource, TextureView& view) {
  const auto& pitched = resource.res.pitch2D;
  constexpr size_t kMaxExtent = 1 << 17;
  Image image;
  if (ElementBytes(pitched.format, pitched.numChannels, &image) == 0 || pitched.devPtr == 0 ||
      pitched.devPtr % kAlignmentBytes != 0 || pitched.pitchInBytes % kPitchAlignmentBytes != 0 ||
      pitched.width == 0 || pitched.height == 0 || pitched.width > kMaxExtent ||
      pitched.height > kMaxExtent || pitched.pitchInBytes >= 1u << 30) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  image.begin = pitched.devPtr;
  image.pitch_bytes = pitched.pitchInBytes;
  image.width = static_cast<uint32_t>(pitched.width);
  image.height = static_cast<uint32_t>(pitched.height);
  view.texture.levels.push_back(image);
  return CUDA_SUCCESS;
}

// The view holds its arrays: destroying one leaves the texture intact.
CUresult SetResource(const CUDA_RESOURCE_DESC& resource, TextureView& view) {
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto array = FindArray(resource.res.array.hArray);
      if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
      view.arrays.push_back(array);
      break;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto mipmap = Registry<Mipmap>::Instance().Find(resource.res.mipmap.hMipmappedArray);
      if (mipmap == nullptr) return CUDA_ERROR_INVALID_VALUE;
      view.arrays = mipmap->levels;
      break;
    }
    case CU_RESOURCE_TYPE_LINEAR:
      return SetLinear(resource, view);
    case CU_RESOURCE_TYPE_PITCH2D:
      return SetPitched(resource, view);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& array : view.arrays) view.texture.levels.push_back(array->image);
  return CUDA_SUCCESS;
}

// False for what CUDA does not have. Anisotropy is left out: it is a hint here.
bool SetSampler(const CUDA_TEXTURE_DESC& sampler, Texture& texture) {
  constexpr unsigned kKnownFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                   CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                   CU_TRSF_SEAMLESS_CUBEMAP;
  if (!IsUpTo(CU_TR_FILTER_MODE_LINEAR, sampler.filterMode) ||
      !IsUpTo(CU_TR_FILTER_MODE_LINEAR, sampler.mipmapFilterMode) ||
      (sampler.flags & ~kKnownFlags) != 0) {
    return false;
  }
  for (int i = 0; i < 3; ++i) {
    switch (sampler.addressMode[i]) {
      case CU_TR_ADDRESS_MODE_WRAP:
        texture.address_mode[i] = AddressMode::kWrap;
        break;
      case CU_TR_ADDRESS_MODE_CLAMP:
        texture.address_mode[i] = AddressMode::kClamp;
        break;
      case CU_TR_ADDRESS_MODE_MIRROR:
        texture.address_mode[i] = AddressMode::kMirror;
        break;
      case CU_TR_ADDRESS_MODE_BORDER:
        texture.address_mode[i] = AddressMode::kBorder;
        break;
      default:
        return false;
    }
  }
  texture.filters = sampler.filterMode == CU_TR_FILTER_MODE_LINEAR;
  texture.filters_levels = sampler.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  texture.normalized_coordinates = (sampler.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  texture.reads_integers = (sampler.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  for (int i = 0; i < 4; ++i) texture.border[i] = sampler.borderColor[i];
  texture.level_bias = sampler.mipmapLevelBias;
  texture.min_level = sampler.minMipmapLevelClamp;
  texture.max_level = sampler.maxMipmapLevelClamp;
  return true;
}

// A view of fewer levels; other formats than the array's are not offered.
CUresult SetView(const CUDA_RESOURCE_VIEW_DESC& view, Texture& texture) {
  if (view.format != CU_RES_VIEW_FORMAT_NONE || view.firstLayer != 0 || view.lastLayer != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (view.firstMipmapLevel > view.lastMipmapLevel ||
      view.lastMipmapLevel >= texture.levels.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture.levels = {texture.levels.begin() + view.firstMipmapLevel,
                    texture.levels.begin() + view.lastMipmapLevel + 1};
  return CUDA_SUCCESS;
}

CUresult Require(uint64_t texture, std::shared_ptr<const TextureView>& view) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  view = Views::Instance().FindTextureView(texture);
  return view == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

namespace gpuloom::softgpu {

// Used for texture objects and for references; only objects have a view.
CUresult MakeView(Context* context, const CUDA_RESOURCE_DESC& resource,
                  const CUDA_TEXTURE_DESC& sampler, const CUDA_RESOURCE_VIEW_DESC* view,
                  std::shared_ptr<TextureView>* made) {
  auto texture = std::make_shared<TextureView>();
  texture->context = context;
  CUDA_RETURN_IF_ERROR(SetResource(resource, *texture));
  if (!SetSampler(sampler, texture->texture)) return CUDA_ERROR_INVALID_VALUE;
  if (view != nullptr) {
    CUDA_RETURN_IF_ERROR(SetView(*view, texture->texture));
    texture->view = *view;
    texture->has_view = true;
  }
  texture->resource = resource;
  texture->sampler = sampler;
  *made = std::move(texture);
  return CUDA_SUCCESS;
}

}  // namespace gpuloom::softgpu

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* texture, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* sampler, const CUDA_RESOURCE_VIEW_DESC* view) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (texture == nullptr || resource == nullptr || sampler == nullptr || resource->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<TextureView> made;
  CUDA_RETURN_IF_ERROR(MakeView(context, *resource, *sampler, view, &made));
  *texture = Views::Instance().Add(std::move(made));
  return CUDA_SUCCESS;
}

// As in CUDA, destroying an unknown handle is no mistake.
CUresult cuTexObjectDestroy(CUtexObject texture) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result == CUDA_SUCCESS) Views::Instance().RemoveTexture(texture);
  return result;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject texture) {
  std::shared_ptr<const TextureView> view;
  CUDA_RETURN_IF_ERROR(Require(texture, view));
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resource = view->resource;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* sampler, CUtexObject texture) {
  std::shared_ptr<const TextureView> view;
  CUDA_RETURN_IF_ERROR(Require(texture, view));
  if (sampler == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *sampler = view->sampler;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject texture) {
  std::shared_ptr<const TextureView> view;
  CUDA_RETURN_IF_ERROR(Require(texture, view));
  if (out == nullptr || !view->has_view) return CUDA_ERROR_INVALID_VALUE;
  *out = view->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* surface, const CUDA_RESOURCE_DESC* resource) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (surface == nullptr || resource == nullptr || resource->flags != 0 ||
      resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made = std::make_shared<SurfaceView>();
  made->context = context;
  made->array = FindArray(resource->res.array.hArray);
  if (made->array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  made->resource = *resource;
  *surface = Views::Instance().Add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject surface) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result == CUDA_SUCCESS) Views::Instance().RemoveSurface(surface);
  return result;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject surface) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto view = Views::Instance().FindSurfaceView(surface);
  if (resource == nullptr || view == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resource = view->resource;
  return CUDA_SUCCESS;
}

}  // extern "C"
