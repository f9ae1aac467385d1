// SPDX-License-Identifier: Apache-2.0
#include "shim/image/texture.h"

#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"
#include "proto/cuda/sampler_fields.h"
#include "proto/wire/array_commands.h"
#include "shim/context/context.h"
#include "shim/image/array.h"
#include "shim/memory/memory.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// A texture or a surface, with what it was made from. Has the fields that FindAtOrBefore and
// FindRange need: `begin` and `size_bytes`.
struct View {
  uint64_t begin;       // the handle
  uint64_t size_bytes;  // 1
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC sampler;
  CUDA_RESOURCE_VIEW_DESC view;
  bool has_view;
};

struct Views {
  Lock lock;
  Growing<View> textures GPULOOM_GUARDED_BY(lock);
  Growing<View> surfaces GPULOOM_GUARDED_BY(lock);
};
constinit Views views;

// The lists are copied from under the lock: the program's memory is not written to while it is
// held.
bool Find(Growing<View>* list, uint64_t handle, View* found) {
  Holding holding(&views.lock);
  const View* view = FindRange(*list, handle, 1);
  if (view == nullptr) return false;
  if (found != nullptr) *found = *view;
  return true;
}

// If several threads destroy one handle, the first gets true. Call it before the executor is asked to destroy the
// object: from then on the driver may give the number to another thread's texture.
bool Remove(Growing<View>* list, uint64_t handle) {
  Holding holding(&views.lock);
  const size_t i = FindAtOrBefore(*list, handle);
  if (i == list->count() || (*list)[i].begin != handle) return false;
  list->Remove(i);
  return true;
}

bool Note(Growing<View>* list, const View& view) {
  Holding holding(&views.lock);
  return InsertSorted(list, view);
}

uint64_t AttributeOf(CUdevice_attribute which) {
  return static_cast<uint64_t>(session.device().attributes[which]);
}

// What memory there is at an address is not judged, here or by CUDA: a texture may be made before
// its memory is mapped and reach beyond it, and only a kernel that reads what is not there faults.
CUresult JudgeLinear(const CUDA_RESOURCE_DESC& from, wire::TextureCreate::Request* to) {
  const auto& linear = from.res.linear;
  const uint64_t element_bytes = PlainElementBytes(linear.format, linear.numChannels);
  if (element_bytes == 0 || linear.devPtr == 0 ||
      linear.devPtr % AttributeOf(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0 ||
      linear.sizeInBytes / element_bytes > kMostLinearElements) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  to->resource = wire::ViewResource::kLinear;
  to->address = linear.devPtr;
  to->size_bytes = linear.sizeInBytes;
  to->format = linear.format;
  to->channels = linear.numChannels;
  return CUDA_SUCCESS;
}

// As JudgeLinear, and the limits of the device for two-dimensional ones; the pitch is in bytes.
CUresult JudgePitched(const CUDA_RESOURCE_DESC& from, wire::TextureCreate::Request* to) {
  const auto& pitched = from.res.pitch2D;
  const uint64_t element_bytes = PlainElementBytes(pitched.format, pitched.numChannels);
  if (element_bytes == 0 || pitched.devPtr == 0 || pitched.width == 0 || pitched.height == 0 ||
      pitched.width > AttributeOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      pitched.height > AttributeOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      pitched.pitchInBytes > AttributeOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
      pitched.pitchInBytes % AttributeOf(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) != 0 ||
      pitched.devPtr % AttributeOf(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  to->resource = wire::ViewResource::kPitched;
  to->address = pitched.devPtr;
  to->width = pitched.width;
  to->height = pitched.height;
  to->pitch_bytes = pitched.pitchInBytes;
  to->format = pitched.format;
  to->channels = pitched.numChannels;
  return CUDA_SUCCESS;
}

// Not judged here: which views a resource allows is the driver's to know.
void SetView(const CUDA_RESOURCE_VIEW_DESC& from, wire::TextureCreate::Request* to) {
  to->has_view = 1;
  to->view_format = from.format;
  to->view_width = from.width;
  to->view_height = from.height;
  to->view_depth = from.depth;
  to->first_level = from.firstMipmapLevel;
  to->last_level = from.lastMipmapLevel;
  to->first_layer = from.firstLayer;
  to->last_layer = from.lastLayer;
}

CUresult DestroyTexture(uint64_t handle) {
  wire::TextureDestroy::Reply reply;
  return session.Call<wire::TextureDestroy>({handle}, &reply);
}
CUresult DestroySurface(uint64_t handle) {
  wire::SurfaceDestroy::Reply reply;
  return session.Call<wire::SurfaceDestroy>({handle}, &reply);
}

}  // namespace

CUresult JudgeResource(const CUDA_RESOURCE_DESC& from, wire::TextureCreate::Request* to) {
  uint32_t id;
  switch (from.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (FindArray(from.res.array.hArray, &id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
      to->resource = wire::ViewResource::kArray;
      to->array = wire::ArrayId{id};
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (FindMipmap(from.res.mipmap.hMipmappedArray, &id) == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      to->resource = wire::ViewResource::kMipmap;
      to->array = wire::ArrayId{id};
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR:
      return JudgeLinear(from, to);
    case CU_RESOURCE_TYPE_PITCH2D:
      return JudgePitched(from, to);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void ReleaseAllViews() {
  Growing<View> textures, surfaces;
  {
    Holding holding(&views.lock);
    textures = views.textures;
    surfaces = views.surfaces;
    // Taken over as a whole, so that the lock is not held for the round trips.
    views.textures = {};
    views.surfaces = {};
  }
  for (const View& view : textures) (void)DestroyTexture(view.begin);
  for (const View& view : surfaces) (void)DestroySurface(view.begin);
  textures.Free();
  surfaces.Free();
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* texture, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* sampler, const CUDA_RESOURCE_VIEW_DESC* view) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  // CUDA reserves the flags.
  if (texture == nullptr || resource == nullptr || sampler == nullptr || resource->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::TextureCreate::Request request = {};
  CUDA_RETURN_IF_ERROR(JudgeResource(*resource, &request));
  SetSampler(*sampler, &request);
  if (view != nullptr) SetView(*view, &request);
  wire::TextureCreate::Reply reply;
  // The program passes the handle to kernels inside of structs, so it must be the driver's own.
  CUDA_RETURN_IF_ERROR(session.Call<wire::TextureCreate>(request, &reply));
  View kept = {};
  kept.begin = reply.texture;
  kept.size_bytes = 1;
  kept.resource = *resource;
  kept.sampler = *sampler;
  if (view != nullptr) kept.view = *view;
  kept.has_view = view != nullptr;
  // A texture that is not listed could neither be queried nor be destroyed with the context.
  if (!Note(&views.textures, kept)) {
    (void)DestroyTexture(reply.texture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  NoteContextObject(ContextObjectKind::kTexture, reply.texture);
  *texture = reply.texture;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject texture) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (!Remove(&views.textures, texture)) return CUDA_SUCCESS;  // as the driver does
  ForgetContextObject(ContextObjectKind::kTexture, texture);
  return DestroyTexture(texture);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject texture) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  View found;
  if (resource == nullptr || !Find(&views.textures, texture, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *resource = found.resource;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* sampler, CUtexObject texture) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  View found;
  if (sampler == nullptr || !Find(&views.textures, texture, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *sampler = found.sampler;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject texture) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  View found;
  // A texture without a view has none to show, as with the driver.
  if (view == nullptr || !Find(&views.textures, texture, &found) || !found.has_view) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *view = found.view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* surface, const CUDA_RESOURCE_DESC* resource) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (surface == nullptr || resource == nullptr || resource->flags != 0 ||
      resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint32_t id;
  const Array* array = FindArray(resource->res.array.hArray, &id);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::SurfaceCreate::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::SurfaceCreate>({wire::ArrayId{id}}, &reply));
  View kept = {};
  kept.begin = reply.surface;
  kept.size_bytes = 1;
  kept.resource = *resource;
  if (!Note(&views.surfaces, kept)) {
    (void)DestroySurface(reply.surface);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  NoteContextObject(ContextObjectKind::kSurface, reply.surface);
  *surface = reply.surface;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject surface) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (!Remove(&views.surfaces, surface)) return CUDA_SUCCESS;  // as the driver does
  ForgetContextObject(ContextObjectKind::kSurface, surface);
  return DestroySurface(surface);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject surface) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  View found;
  if (resource == nullptr || !Find(&views.surfaces, surface, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *resource = found.resource;
  return CUDA_SUCCESS;
}

}  // extern "C"
