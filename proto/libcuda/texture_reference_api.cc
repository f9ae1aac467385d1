// SPDX-License-Identifier: Apache-2.0
// cuTexRef*, cuSurfRef* and cuParamSetTexRef. Where a module's references come from is each library's
// own: cuModuleGetTexRef and cuModuleGetSurfRef.
//
// Compiled into the shim and into the software driver.
#include <string.h>

#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"
#include "proto/cuda/texture_reference.h"

// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gpuloom {
namespace {

// The driver accepts two flags without a name, but not CU_TRSF_SEAMLESS_CUBEMAP.
constexpr unsigned kKnownFlags = 0x3f;
// The number of a texture's coordinates, each of which has an addressing mode.
constexpr int kDimensions = 3;

// cuda.h wants CU_TRSA_OVERRIDE_FORMAT, and CUDA 11's runtime passes 0. The format is the array's
// either way.
bool IsArrayFlags(unsigned flags) { return flags == 0 || flags == CU_TRSA_OVERRIDE_FORMAT; }

// Calls `change` with the reference while the library holds it; its result is the call's. The
// lambda without captures is what fits the library's plain function pointer.
template <typename F>
CUresult Change(CUtexref handle, F change) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  return ChangeReference(
      handle,
      [](TextureReference* reference, void* argument) {
        return (*static_cast<F*>(argument))(reference);
      },
      &change);
}

// `out` is where the caller wants the value; null is an error.
template <typename F>
CUresult Read(const void* out, CUtexref handle, F read) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  TextureReference reference;
  if (!ReadReference(handle, &reference)) return CUDA_ERROR_INVALID_HANDLE;
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : read(reference);
}

bool IsFilter(CUfilter_mode mode) {
  return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
}

// An attribute of device 0, the only one that a program has. 1 if it is unknown: as an alignment that allows
// everything.
uint64_t LimitOf(CUdevice_attribute attribute) {
  int limit = 0;
  return cuDeviceGetAttribute(&limit, attribute, 0) == CUDA_SUCCESS && limit > 0
             ? static_cast<uint64_t>(limit)
             : 1;
}

void Unbind(TextureReference* reference) {
  reference->bound = false;
  ++reference->times_bound;
  memset(&reference->resource, 0, sizeof(reference->resource));
}

// `*inside`: the offset of the address from the last address at which the hardware can begin.
CUresult SetLinear(TextureReference* reference, CUdeviceptr address, size_t size_bytes,
                   bool may_begin_before, size_t* inside) {
  *inside = 0;
  if (address == 0) {
    Unbind(reference);
    return CUDA_SUCCESS;
  }
  // The hardware begins at an aligned address; a program that takes an offset adds it to its
  // coordinates.
  *inside = address % LimitOf(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  const uint64_t element_bytes = ChannelBytes(reference->format) * reference->channels;
  if ((*inside != 0 && !may_begin_before) || size_bytes > SIZE_MAX - *inside ||
      size_bytes / (element_bytes == 0 ? 1 : element_bytes) > kMostLinearElements) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Unbind(reference);
  reference->bound = true;
  reference->resource.resType = CU_RESOURCE_TYPE_LINEAR;
  reference->resource.res.linear = {address - *inside, reference->format, reference->channels,
                                    size_bytes + *inside};
  return CUDA_SUCCESS;
}

// An unknown format is no error here; the reference is then unbound for launches.
CUresult SetPitched(TextureReference* reference, const CUDA_ARRAY_DESCRIPTOR& shape,
                    CUdeviceptr address, size_t pitch_bytes, size_t pitch_alignment) {
  const uint64_t element_bytes = ChannelBytes(shape.Format) * shape.NumChannels;
  if (shape.Width == 0 || shape.Height == 0 ||
      shape.Width > LimitOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      shape.Height > LimitOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      pitch_bytes > LimitOf(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
      pitch_bytes % pitch_alignment != 0 || pitch_bytes == 0 ||
      shape.Width * element_bytes > pitch_bytes ||
      address % LimitOf(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Unbind(reference);
  reference->bound = true;
  reference->format = shape.Format;
  reference->channels = shape.NumChannels;
  reference->resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  reference->resource.res.pitch2D = {address,     shape.Format, shape.NumChannels,
                                     shape.Width, shape.Height, pitch_bytes};
  return CUDA_SUCCESS;
}

CUresult SetAddress2D(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* shape, CUdeviceptr address,
                      size_t pitch_bytes, size_t pitch_alignment) {
  return Change(handle, [&](TextureReference* reference) {
    return shape == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : SetPitched(reference, *shape, address, pitch_bytes, pitch_alignment);
  });
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // this file only defines CUDA's C functions

extern "C" {

CUresult cuTexRefCreate(CUtexref* handle) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeReference(handle);
}

// A module's references go with it, and not before.
CUresult cuTexRefDestroy(CUtexref handle) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  return IsOfModule(handle) ? CUDA_SUCCESS : DestroyReference(handle);
}

CUresult cuTexRefSetArray(CUtexref handle, CUarray array, unsigned flags) {
  return Change(handle, [&](TextureReference* reference) {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    // Also how the array's handle is judged.
    if (cuArray3DGetDescriptor_v2(&shape, array) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
    if (!IsArrayFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    Unbind(reference);
    reference->bound = true;
    reference->format = shape.Format;
    reference->channels = shape.NumChannels;
    reference->resource.resType = CU_RESOURCE_TYPE_ARRAY;
    reference->resource.res.array.hArray = array;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray array, unsigned flags) {
  return Change(handle, [&](TextureReference* reference) {
    CUarray level;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    if (cuMipmappedArrayGetLevel(&level, array, 0) != CUDA_SUCCESS ||
        cuArray3DGetDescriptor_v2(&shape, level) != CUDA_SUCCESS) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!IsArrayFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    Unbind(reference);
    reference->bound = true;
    reference->format = shape.Format;
    reference->channels = shape.NumChannels;
    reference->resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    reference->resource.res.mipmap.hMipmappedArray = array;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetAddress_v2(size_t* offset, CUtexref handle, CUdeviceptr address,
                               size_t size_bytes) {
  size_t inside = 0;
  const CUresult result = Change(handle, [&](TextureReference* reference) {
    return SetLinear(reference, address, size_bytes, offset != nullptr, &inside);
  });
  if (result == CUDA_SUCCESS && offset != nullptr) *offset = inside;
  return result;
}

// Only the last version reports a pitch that is too small for the hardware; with older versions the
// reference is then unbound for launches.
CUresult cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* shape,
                                 CUdeviceptr address, size_t pitch_bytes) {
  return SetAddress2D(handle, shape, address, pitch_bytes, 1);
}
CUresult cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* shape,
                                 CUdeviceptr address, size_t pitch_bytes) {
  return SetAddress2D(handle, shape, address, pitch_bytes,
                      LimitOf(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT));
}

// An array that is bound keeps its own format. An unknown format, or no channels, is no error here;
// the reference is then unbound for launches.
CUresult cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
  return Change(handle, [&](TextureReference* reference) {
    if (channels > 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
    reference->format = format;
    reference->channels = static_cast<unsigned>(channels);
    if (reference->bound && reference->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
      reference->resource.res.linear.format = format;
      reference->resource.res.linear.numChannels = reference->channels;
    }
    return CUDA_SUCCESS;
  });
}

// The driver treats unknown modes as clamping.
CUresult cuTexRefSetAddressMode(CUtexref handle, int dimension, CUaddress_mode mode) {
  return Change(handle, [&](TextureReference* reference) {
    if (dimension < 0 || dimension >= kDimensions) return CUDA_ERROR_INVALID_VALUE;
    const bool known = mode >= CU_TR_ADDRESS_MODE_WRAP && mode <= CU_TR_ADDRESS_MODE_BORDER;
    reference->sampler.addressMode[dimension] = known ? mode : CU_TR_ADDRESS_MODE_CLAMP;
    return CUDA_SUCCESS;
  });
}

// Any value is accepted, unlike for the filter between levels.
CUresult cuTexRefSetFilterMode(CUtexref handle, CUfilter_mode mode) {
  return Change(handle, [&](TextureReference* reference) {
    reference->sampler.filterMode = mode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref handle, CUfilter_mode mode) {
  return Change(handle, [&](TextureReference* reference) {
    if (!IsFilter(mode)) return CUDA_ERROR_INVALID_VALUE;
    reference->sampler.mipmapFilterMode = mode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref handle, float bias) {
  return Change(handle, [&](TextureReference* reference) {
    reference->sampler.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
  return Change(handle, [&](TextureReference* reference) {
    reference->sampler.minMipmapLevelClamp = least;
    reference->sampler.maxMipmapLevelClamp = most;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref handle, unsigned most) {
  return Change(handle, [&](TextureReference* reference) {
    reference->sampler.maxAnisotropy = most;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetBorderColor(CUtexref handle, float* color) {
  return Change(handle, [&](TextureReference* reference) {
    if (color == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memcpy(reference->sampler.borderColor, color, sizeof(reference->sampler.borderColor));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFlags(CUtexref handle, unsigned flags) {
  return Change(handle, [&](TextureReference* reference) {
    if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    reference->sampler.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* address, CUtexref handle) {
  return Read(address, handle, [&](const TextureReference& reference) {
    if (!reference.bound) return CUDA_ERROR_INVALID_VALUE;
    if (reference.resource.resType == CU_RESOURCE_TYPE_LINEAR) {
      *address = reference.resource.res.linear.devPtr;
    } else if (reference.resource.resType == CU_RESOURCE_TYPE_PITCH2D) {
      *address = reference.resource.res.pitch2D.devPtr;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetArray(CUarray* array, CUtexref handle) {
  return Read(array, handle, [&](const TextureReference& reference) {
    if (!reference.bound || reference.resource.resType != CU_RESOURCE_TYPE_ARRAY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *array = reference.resource.res.array.hArray;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* array, CUtexref handle) {
  return Read(array, handle, [&](const TextureReference& reference) {
    if (!reference.bound || reference.resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *array = reference.resource.res.mipmap.hMipmappedArray;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddressMode(CUaddress_mode* mode, CUtexref handle, int dimension) {
  return Read(mode, handle, [&](const TextureReference& reference) {
    if (dimension < 0 || dimension >= kDimensions) return CUDA_ERROR_INVALID_VALUE;
    *mode = reference.sampler.addressMode[dimension];
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFilterMode(CUfilter_mode* mode, CUtexref handle) {
  return Read(mode, handle, [&](const TextureReference& reference) {
    *mode = reference.sampler.filterMode;
    return CUDA_SUCCESS;
  });
}

// Either may be null.
CUresult cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref handle) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  TextureReference reference;
  if (!ReadReference(handle, &reference)) return CUDA_ERROR_INVALID_HANDLE;
  if (format != nullptr) *format = reference.format;
  if (channels != nullptr) *channels = static_cast<int>(reference.channels);
  return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* mode, CUtexref handle) {
  return Read(mode, handle, [&](const TextureReference& reference) {
    *mode = reference.sampler.mipmapFilterMode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelBias(float* bias, CUtexref handle) {
  return Read(bias, handle, [&](const TextureReference& reference) {
    *bias = reference.sampler.mipmapLevelBias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref handle) {
  return Read(least, handle, [&](const TextureReference& reference) {
    if (most == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *least = reference.sampler.minMipmapLevelClamp;
    *most = reference.sampler.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMaxAnisotropy(int* most, CUtexref handle) {
  return Read(most, handle, [&](const TextureReference& reference) {
    *most = static_cast<int>(reference.sampler.maxAnisotropy);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetBorderColor(float* color, CUtexref handle) {
  return Read(color, handle, [&](const TextureReference& reference) {
    memcpy(color, reference.sampler.borderColor, sizeof(reference.sampler.borderColor));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFlags(unsigned* flags, CUtexref handle) {
  return Read(flags, handle, [&](const TextureReference& reference) {
    *flags = reference.sampler.flags;
    return CUDA_SUCCESS;
  });
}

// Kernels name their references themselves. The driver takes no unit any more, CU_PARAM_TR_DEFAULT
// included.
CUresult cuParamSetTexRef(CUfunction function, int, CUtexref handle) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  int ignored;
  CUDA_RETURN_IF_ERROR(
      cuFuncGetAttribute(&ignored, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  TextureReference reference;
  if (!ReadReference(handle, &reference)) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  CUDA_ARRAY3D_DESCRIPTOR shape;
  // Only to learn whether the handle is a reference.
  CUarray before;
  if (!ReadReference(handle, &before) || cuArray3DGetDescriptor_v2(&shape, array) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (flags != 0 || (shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
  return BindReference(handle, array);
}

CUresult cuSurfRefGetArray(CUarray* array, CUsurfref handle) {
  CUDA_RETURN_IF_ERROR(NeedReferences());
  CUarray bound = nullptr;
  if (!ReadReference(handle, &bound)) return CUDA_ERROR_INVALID_HANDLE;
  if (array == nullptr || bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *array = bound;
  return CUDA_SUCCESS;
}

}  // extern "C"
