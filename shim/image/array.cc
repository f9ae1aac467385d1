// SPDX-License-Identifier: Apache-2.0
#include "shim/image/array.h"

#include <string.h>

#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/batch_copy.h"
#include "proto/wire/array_commands.h"
#include "shim/context/context.h"
#include "shim/image/texture_reference.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Arrays {
  Lock lock;
  HandleTable<Array, wire::kMaxArrays> table;
};
constinit Arrays arrays;

// Flags with which `Depth` counts layers or faces: all levels have the same number of them.
constexpr unsigned kLayers = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;

// CUDA's descriptors have 0 for a dimension that an array does not have.
uint64_t AtLeastOne(uint64_t n) { return n == 0 ? 1 : n; }

// CUDA's rules for what an array may look like. NOT_SUPPORTED for what gpuloom does not offer.
CUresult Judge(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  constexpr unsigned kOffered = kLayers | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER |
                                CUDA_ARRAY3D_COLOR_ATTACHMENT;
  constexpr unsigned kKnown = kOffered | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_SPARSE |
                              CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  if (d.Width == 0 || (d.Flags & ~kKnown) != 0 ||
      (d.NumChannels != 1 && d.NumChannels != 2 && d.NumChannels != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!IsArrayFormat(d.Format)) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~kOffered) != 0 || ElementBytes(d) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  // A cubemap has six square faces; a layered one has six for each layer.
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if (d.Width != d.Height || d.Depth == 0 || d.Depth % 6 != 0 || (!layered && d.Depth != 6)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  } else if ((d.Flags & CUDA_ARRAY3D_LAYERED) != 0) {
    if (d.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  } else if (d.Height == 0 && d.Depth != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto attribute = [](CUdevice_attribute which) {
    return static_cast<uint64_t>(session.device().attributes[which]);
  };
  // The largest size depends on the kind of array. A dimension that the kind does not have must be
  // 0.
  uint64_t width, height = 0, depth = 0;
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    width = height = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH);
    depth = UINT64_MAX;
  } else if ((d.Flags & CUDA_ARRAY3D_LAYERED) != 0 && d.Height == 0) {
    width = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH);
    depth = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS);
  } else if ((d.Flags & CUDA_ARRAY3D_LAYERED) != 0) {
    width = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH);
    height = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT);
    depth = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS);
  } else if (d.Depth != 0) {
    width = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH);
    height = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT);
    depth = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH);
  } else if (d.Height != 0) {
    width = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH);
    height = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT);
  } else {
    width = attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH);
  }
  return d.Width <= width && d.Height <= height && d.Depth <= depth ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_VALUE;
}

// What the array of one level looks like to the program.
CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& whole, uint32_t level) {
  CUDA_ARRAY3D_DESCRIPTOR d = whole;
  const auto halved = [level](size_t n) {
    return n == 0 ? 0 : static_cast<size_t>(AtLeastOne(n >> level));
  };
  d.Width = halved(d.Width);
  d.Height = halved(d.Height);
  if ((d.Flags & kLayers) == 0) d.Depth = halved(d.Depth);
  return d;
}

// The number of levels down to the one whose every dimension is 1.
uint32_t MostLevels(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  uint64_t largest = d.Width > d.Height ? d.Width : d.Height;
  if ((d.Flags & kLayers) == 0 && d.Depth > largest) largest = d.Depth;
  uint32_t levels = 1;
  while ((largest >>= 1) != 0) ++levels;
  return levels;
}

// Two steps around the round trip: the id is taken before the executor makes the array under it,
// and given back if that fails.
Array* Take(Array::Kind kind, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  Holding holding(&arrays.lock);
  Array* array = arrays.table.Take(arrays.lock);
  if (array == nullptr) return nullptr;
  array->kind = kind;
  array->descriptor = descriptor;
  return array;
}

void Give(Array* array) {
  Holding holding(&arrays.lock);
  arrays.table.Give(arrays.lock, array);
}

ContextObjectKind ContextObjectKindOf(const Array& array) {
  return array.kind == Array::Kind::kMipmap ? ContextObjectKind::kMipmap
                                            : ContextObjectKind::kArray;
}

// Makes an array, or with levels != 0 a mipmapped one.
CUresult Create(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, uint32_t levels, Array** made) {
  CUDA_RETURN_IF_ERROR(Judge(descriptor));
  Array* array = Take(levels == 0 ? Array::Kind::kArray : Array::Kind::kMipmap, descriptor);
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const wire::ArrayCreate::Request request = {wire::ArrayId{arrays.table.IdOf(array)},
                                              levels,
                                              descriptor.Width,
                                              descriptor.Height,
                                              descriptor.Depth,
                                              descriptor.Format,
                                              descriptor.NumChannels,
                                              descriptor.Flags,
                                              0};
  wire::ArrayCreate::Reply reply;
  const CUresult result = session.Call<wire::ArrayCreate>(request, &reply);
  if (result != CUDA_SUCCESS) {
    Give(array);
    return result;
  }
  array->levels = reply.levels;
  NoteContextObject(ContextObjectKindOf(*array), reinterpret_cast<uint64_t>(array));
  *made = array;
  return CUDA_SUCCESS;
}

// Arrays and mipmapped arrays share a table, but not their handles: a CUarray may be a level, and
// is never a mipmap.
Array* FindKind(const void* handle, bool mipmap) {
  Array* array = arrays.table.Find(handle);
  return array != nullptr && (array->kind == Array::Kind::kMipmap) == mipmap ? array : nullptr;
}

// The handles become invalid at once, whatever other threads do with them; their ids are reused
// only when the executor has forgotten them.
CUresult Destroy(Array* array) {
  // No dimension needs more bits.
  constexpr uint32_t kMostLevels = 32;
  uint32_t ids[kMostLevels + 1] = {arrays.table.IdOf(array)};
  const Array* levels[kMostLevels + 1] = {};
  uint32_t count = 1;
  {
    Holding holding(&arrays.lock);
    if (!arrays.table.Give(arrays.lock, array, /*reuse=*/false)) return CUDA_ERROR_INVALID_HANDLE;
    for (uint32_t id = array->next_level; id != 0 && count <= kMostLevels; ++count) {
      Array* level = arrays.table.At(id);
      ids[count] = id;
      levels[count] = level;
      id = level->next_level;
      arrays.table.Give(arrays.lock, level, false);
    }
  }
  ForgetContextObject(ContextObjectKindOf(*array), reinterpret_cast<uint64_t>(array));
  // Only now, so that no thread can bind them again.
  UnbindArray(array);
  for (uint32_t i = 1; i < count; ++i) UnbindArray(levels[i]);
  // Levels need no message: at the executor they go with the mipmap.
  wire::ArrayDestroy::Reply reply;
  const CUresult result = session.Call<wire::ArrayDestroy>({wire::ArrayId{ids[0]}}, &reply);
  Holding holding(&arrays.lock);
  for (uint32_t i = 0; i < count; ++i) arrays.table.Reuse(arrays.lock, ids[i]);
  return result;
}

// A level's array is made when it is first asked for, and is the same from then on.
CUresult GetLevel(Array* whole, uint32_t level, Array** found) {
  const uint32_t whole_id = arrays.table.IdOf(whole);
  // Held across the question: two threads that ask for the same level get the same handle.
  Holding holding(&arrays.lock);
  // Another thread may have destroyed it since it was found.
  if (whole->alive.load(std::memory_order_relaxed) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (uint32_t id = whole->next_level; id != 0;) {
    Array* other = arrays.table.At(id);
    if (other->level == level) {
      *found = other;
      return CUDA_SUCCESS;
    }
    id = other->next_level;
  }
  Array* made = arrays.table.Take(arrays.lock);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::ArrayLevel::Reply reply;
  const CUresult result = session.Call<wire::ArrayLevel>(
      {wire::ArrayId{whole_id}, wire::ArrayId{arrays.table.IdOf(made)}, level}, &reply);
  if (result != CUDA_SUCCESS) {
    arrays.table.Give(arrays.lock, made);
    return result;
  }
  made->kind = Array::Kind::kLevel;
  made->descriptor = LevelOf(whole->descriptor, level);
  made->whole = whole_id;
  made->level = level;
  made->next_level = whole->next_level;
  whole->next_level = arrays.table.IdOf(made);
  *found = made;
  return CUDA_SUCCESS;
}

}  // namespace

const Array* FindArray(CUarray handle, uint32_t* id) {
  const Array* array = FindKind(handle, false);
  if (array != nullptr) *id = arrays.table.IdOf(array);
  return array;
}

const Array* FindMipmap(CUmipmappedArray handle, uint32_t* id) {
  const Array* array = FindKind(handle, true);
  if (array != nullptr) *id = arrays.table.IdOf(array);
  return array;
}

// For batches of copies (proto/libcuda/batch_copy.h).
uint32_t ArrayElementBytes(CUarray handle) {
  uint32_t id;
  const Array* array = FindArray(handle, &id);
  return array == nullptr ? 0 : ElementBytes(array->descriptor);
}

uint32_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  return static_cast<uint32_t>(ChannelBytes(descriptor.Format)) * descriptor.NumChannels;
}

ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const uint32_t element_bytes = ElementBytes(descriptor);
  return {descriptor.Width * element_bytes, AtLeastOne(descriptor.Height),
          AtLeastOne(descriptor.Depth), element_bytes};
}

void ReleaseAllArrays() {
  for (uint32_t id = 1; id <= arrays.table.used(); ++id) {
    Array* array = arrays.table.At(id);
    // Levels go with their mipmaps.
    if (array != nullptr && array->kind != Array::Kind::kLevel) (void)Destroy(array);
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Array* array;
  const CUresult result = Create(*descriptor, 0, &array);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUarray>(array);
  return result;
}

CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Depth 0, no flags: a plain array of one or two dimensions.
  CUDA_ARRAY3D_DESCRIPTOR full = {};
  full.Width = descriptor->Width;
  full.Height = descriptor->Height;
  full.Format = descriptor->Format;
  full.NumChannels = descriptor->NumChannels;
  return cuArray3DCreate_v2(handle, &full);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint32_t id;
  const Array* array = FindArray(handle, &id);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = {array->descriptor.Width, array->descriptor.Height, array->descriptor.Format,
                 array->descriptor.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint32_t id;
  const Array* array = FindArray(handle, &id);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Array* array = FindKind(handle, false);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A level is destroyed with its mipmapped array; the driver accepts this call.
  if (array->kind == Array::Kind::kLevel) return CUDA_SUCCESS;
  const CUresult result = Destroy(array);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

// No format that gpuloom supports has planes, and no array has deferred memory.
CUresult cuArrayGetPlane(CUarray* plane, CUarray handle, unsigned) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint32_t id;
  if (plane == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FindArray(handle, &id) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint32_t id;
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FindArray(handle, &id) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray handle,
                                      CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint32_t id;
  if (requirements == nullptr || device != kOnlyDevice) return CUDA_ERROR_INVALID_VALUE;
  return FindArray(handle, &id) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // CUDA clamps the number instead of refusing it.
  const uint32_t most = MostLevels(*descriptor);
  if (levels == 0) levels = 1;
  Array* array;
  const CUresult result = Create(*descriptor, levels < most ? levels : most, &array);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmipmappedArray>(array);
  return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned which) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Array* whole = FindKind(handle, true);
  if (level == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (which >= whole->levels) return CUDA_ERROR_INVALID_VALUE;
  Array* found;
  const CUresult result = GetLevel(whole, which, &found);
  if (result == CUDA_SUCCESS) *level = reinterpret_cast<CUarray>(found);
  return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Array* array = FindKind(handle, true);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = Destroy(array);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties,
                                             CUmipmappedArray handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FindKind(handle, true) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements,
                                               CUmipmappedArray handle, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (requirements == nullptr || device != kOnlyDevice) return CUDA_ERROR_INVALID_VALUE;
  return FindKind(handle, true) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
