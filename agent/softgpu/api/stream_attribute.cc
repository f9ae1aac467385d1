// SPDX-License-Identifier: Apache-2.0
// cuStreamGetAttribute, cuStreamSetAttribute, cuStreamCopyAttributes. All of them are hints to
// hardware; they are kept and given back. The priority belongs to the stream since it was made.
#include <map>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// The launch attributes that CUDA also has for streams.
bool IsStreamAttribute(CUstreamAttrID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN ||
         attribute == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
}

CUresult Require(CUstream handle, DefaultStream null_means, std::shared_ptr<Stream>& stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  stream = FindStream(*context, handle, null_means);
  return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute,
                                   CUstreamAttrValue* value, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  *value = stream->GetAttribute(attribute);
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && value->syncPolicy == 0) {
    value->syncPolicy = static_cast<CUsynchronizationPolicy>(-1);  // never set, says CUDA so
  }
  return CUDA_SUCCESS;
}

CUresult api::cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                                   const CUstreamAttrValue* value, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
      (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
       value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream->SetAttribute(attribute, *value);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle,
                                     DefaultStream null_means) {
  std::shared_ptr<Stream> to;
  std::shared_ptr<Stream> from;
  CUDA_RETURN_IF_ERROR(Require(to_handle, null_means, to));
  CUDA_RETURN_IF_ERROR(Require(from_handle, null_means, from));
  // Over all numbers, because those that are streams' do not lie together.
  for (int id = 0; id < CU_LAUNCH_ATTRIBUTE_MAX; ++id) {
    const auto attribute = static_cast<CUstreamAttrID>(id);
    if (IsStreamAttribute(attribute)) to->SetAttribute(attribute, from->GetAttribute(attribute));
  }
  return CUDA_SUCCESS;
}
