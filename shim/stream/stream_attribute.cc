// SPDX-License-Identifier: Apache-2.0
// Attributes of streams: hints about caches, synchronisation domains and how the host waits. They
// are kept, copied and shown; work runs the same with and without them.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/process/futex.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

struct Attributes {
  CUaccessPolicyWindow window;
  CUsynchronizationPolicy policy;  // 0: never set
  CUlaunchMemSyncDomainMap domains;
  bool domains_set;
  CUlaunchMemSyncDomain domain;
  uint32_t nvlink_centric;
};

struct AllAttributes {
  Lock lock;
  // By id, the default streams' included. A new stream clears its own (ResetStreamAttributes).
  Attributes of[wire::kMaxStreams] GPULOOM_GUARDED_BY(lock);
};
constinit AllAttributes all = {};

Attributes& OfLocked(wire::StreamId id) GPULOOM_REQUIRES(all.lock) {
  return all.of[static_cast<uint32_t>(id)];
}

CUresult Find(CUstream handle, DefaultStream null_means, wire::StreamId* id) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return FindStream(handle, null_means, id);
}

}  // namespace

void ResetStreamAttributes(wire::StreamId id) {
  Holding holding(&all.lock);
  OfLocked(id) = {};
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute,
                                   CUstreamAttrValue* value, DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Find(handle, null_means, &id));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Holding holding(&all.lock);
  const Attributes& of = OfLocked(id);
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value->accessPolicyWindow = of.window;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      // The driver reports -1 for what was never set.
      value->syncPolicy = of.policy == 0 ? static_cast<CUsynchronizationPolicy>(-1) : of.policy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = PriorityOf(id);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      // By default, domain 0 for everything but launches that ask for the remote one.
      value->memSyncDomainMap = of.domains_set ? of.domains : CUlaunchMemSyncDomainMap{0, 1};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value->memSyncDomain = of.domain;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      value->nvlinkUtilCentricScheduling = of.nvlink_centric;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult api::cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                                   const CUstreamAttrValue* value, DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Find(handle, null_means, &id));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Holding holding(&all.lock);
  Attributes& of = OfLocked(id);
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      of.window = value->accessPolicyWindow;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
          value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      of.policy = value->syncPolicy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      of.domains = value->memSyncDomainMap;
      of.domains_set = true;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      if (value->memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
          value->memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      of.domain = value->memSyncDomain;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      of.nvlink_centric = value->nvlinkUtilCentricScheduling;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      // The executor's streams cannot change their priority.
      return value->priority == PriorityOf(id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The priority is not among what is kept, so it is not copied.
CUresult api::cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle,
                                     DefaultStream null_means) {
  wire::StreamId to, from;
  CUDA_RETURN_IF_ERROR(Find(to_handle, null_means, &to));
  CUDA_RETURN_IF_ERROR(Find(from_handle, null_means, &from));
  Holding holding(&all.lock);
  OfLocked(to) = OfLocked(from);
  return CUDA_SUCCESS;
}
