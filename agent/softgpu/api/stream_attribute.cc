// SPDX-License-Identifier: Apache-2.0
// cuStreamGetAttribute, cuStreamSetAttribute, cuStreamCopyAttributes. All of them are hints to
// hardware; they are kept and given back. The priority belongs to the stream since it was made.
#include <map>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

constexpr bool kLegacy = false;
constexpr bool kPerThread = true;

bool IsStreamAttribute(CUstreamAttrID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN ||
         attribute == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
}

CUresult Require(CUstream handle, bool per_thread, std::shared_ptr<Stream>& stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  stream = FindStream(*context, handle, per_thread);
  return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Get(CUstream handle, bool per_thread, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  *value = stream->GetAttribute(attribute);
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && value->syncPolicy == 0) {
    value->syncPolicy = static_cast<CUsynchronizationPolicy>(-1);  // never set, says CUDA so
  }
  return CUDA_SUCCESS;
}

CUresult Set(CUstream handle, bool per_thread, CUstreamAttrID attribute,
             const CUstreamAttrValue* value) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
      (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
       value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream->SetAttribute(attribute, *value);
  return CUDA_SUCCESS;
}

CUresult Duplicate(CUstream to_handle, CUstream from_handle, bool per_thread) {
  std::shared_ptr<Stream> to;
  std::shared_ptr<Stream> from;
  CUresult result = Require(to_handle, per_thread, to);
  if (result == CUDA_SUCCESS) result = Require(from_handle, per_thread, from);
  if (result != CUDA_SUCCESS) return result;
  for (int id = 0; id < CU_LAUNCH_ATTRIBUTE_MAX; ++id) {
    const auto attribute = static_cast<CUstreamAttrID>(id);
    if (IsStreamAttribute(attribute)) to->SetAttribute(attribute, from->GetAttribute(attribute));
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return Get(stream, kLegacy, attribute, value);
}
CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                   CUstreamAttrValue* value) {
  return Get(stream, kPerThread, attribute, value);
}
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute,
                              const CUstreamAttrValue* value) {
  return Set(stream, kLegacy, attribute, value);
}
CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                   const CUstreamAttrValue* value) {
  return Set(stream, kPerThread, attribute, value);
}
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) { return Duplicate(to, from, kLegacy); }
CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
  return Duplicate(to, from, kPerThread);
}

}  // extern "C"
