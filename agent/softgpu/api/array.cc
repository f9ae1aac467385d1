// SPDX-License-Identifier: Apache-2.0
// cuArray*, cuMipmappedArray*. What is out of the ordinary (planes, sparse memory, memory bound
// later) is answered as for an array that has none of it.
#include "agent/softgpu/driver/array.h"

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/texture_reference.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Checks that there is a current context, and finds the array.
CUresult Require(CUarray handle, std::shared_ptr<Array>& array) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  array = FindArray(handle);
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Require(CUmipmappedArray handle, std::shared_ptr<Mipmap>& mipmap) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  mipmap = Registry<Mipmap>::Instance().Find(handle);
  return mipmap == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Array> array;
  const CUresult result = MakeArray(*context, *descriptor, array);
  if (result == CUDA_SUCCESS) *handle = array->handle();
  return result;
}

// The older form: two dimensions and no flags.
CUresult cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR full = {};
  full.Width = descriptor->Width;
  full.Height = descriptor->Height;
  full.Format = descriptor->Format;
  full.NumChannels = descriptor->NumChannels;
  return cuArray3DCreate_v2(handle, &full);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_RETURN_IF_ERROR(Require(handle, array));
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_RETURN_IF_ERROR(Require(handle, array));
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The older form cannot express depth and flags; they are left out.
  const CUDA_ARRAY3D_DESCRIPTOR& full = array->descriptor;
  *descriptor = {full.Width, full.Height, full.Format, full.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_RETURN_IF_ERROR(Require(handle, array));
  if (array->is_level) return CUDA_SUCCESS;  // it is destroyed with its mipmapped array
  // Waits, as CUDA does: work that was submitted before may still use the array.
  SynchronizeDevice(array->context->device);
  // The registry's reference goes here; a texture or surface over it may hold the memory longer.
  Registry<Array>::Instance().Take(handle);
  UnbindArray(handle);
  return CUDA_SUCCESS;
}

// None of the formats here has planes, and no array is sparse or waits for its memory.
CUresult cuArrayGetPlane(CUarray*, CUarray handle, unsigned) {
  std::shared_ptr<Array> array;
  const CUresult result = Require(handle, array);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
  std::shared_ptr<Array> array;
  const CUresult result = Require(handle, array);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray handle, CUdevice) {
  std::shared_ptr<Array> array;
  const CUresult result = Require(handle, array);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray handle) {
  std::shared_ptr<Mipmap> mipmap;
  const CUresult result = Require(handle, mipmap);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray handle, CUdevice) {
  std::shared_ptr<Mipmap> mipmap;
  const CUresult result = Require(handle, mipmap);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Mipmap> mipmap;
  const CUresult result = MakeMipmap(*context, *descriptor, levels, mipmap);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmipmappedArray>(mipmap.get());
  return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned which) {
  std::shared_ptr<Mipmap> mipmap;
  CUDA_RETURN_IF_ERROR(Require(handle, mipmap));
  if (level == nullptr || which >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *level = mipmap->levels[which]->handle();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  std::shared_ptr<Mipmap> mipmap;
  CUDA_RETURN_IF_ERROR(Require(handle, mipmap));
  // Its levels are destroyed with it, and references that were bound to either become unbound.
  SynchronizeDevice(mipmap->context->device);
  Registry<Mipmap>::Instance().Take(handle);
  UnbindArray(handle);
  for (const auto& level : mipmap->levels) {
    Registry<Array>::Instance().Take(level.get());
    UnbindArray(level.get());
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
