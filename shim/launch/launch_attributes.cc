// SPDX-License-Identifier: Apache-2.0
#include "shim/launch/launch_attributes.h"

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "shim/process/log.h"

namespace gpuloom {
namespace {

// Logs each attribute only once.
void NoteUnsupportedAttribute(CUlaunchAttributeID id) {
  static std::atomic<uint64_t> noted{0};
  const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(id) % 64);
  if ((noted.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    Log(LogLevel::kWarn, "cuLaunchKernelEx: launch attribute %d is not supported",
        static_cast<int>(id));
  }
}

CUresult AddEvent(CUevent event, int flags, LaunchAsks* asks) {
  // CUDA refuses CU_EVENT_RECORD_EXTERNAL here, where it has no meaning.
  if (event == nullptr || flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  // One programmatic and one completion event, at most.
  if (asks->event_count == 2) return CUDA_ERROR_INVALID_VALUE;
  asks->events[asks->event_count++] = event;
  return CUDA_SUCCESS;
}

// Takes over one attribute. What only tunes is accepted and dropped; what would change results is
// sent or refused, never ignored.
CUresult Read(const CUlaunchAttribute& attribute, LaunchAsks* asks) {
  wire::LaunchAttributes& to = asks->attributes;
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    // Hints about caches, links and how the host waits: without them a launch has the same results.
    // (A window of persisting lines would take cache from other tenants.)
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      to.cooperative = value.cooperative != 0 ? 1 : 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      to.cluster[0] = value.clusterDim.x;
      to.cluster[1] = value.clusterDim.y;
      to.cluster[2] = value.clusterDim.z;
      break;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      to.preferred_cluster[0] = value.preferredClusterDim.x;
      to.preferred_cluster[1] = value.preferredClusterDim.y;
      to.preferred_cluster[2] = value.preferredClusterDim.z;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (static_cast<unsigned>(value.clusterSchedulingPolicyPreference) >
          CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      to.cluster_scheduling_policy = value.clusterSchedulingPolicyPreference;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      to.programmatic_serialization = value.programmaticStreamSerializationAllowed != 0 ? 1 : 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      to.priority = value.priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      to.sync_domain_map = value.memSyncDomainMap.default_ | uint32_t{value.memSyncDomainMap.remote}
                                                                 << 8;
      break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      to.sync_domain = value.memSyncDomain;
      break;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      to.shared_memory_carveout = value.sharedMemCarveout;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return AddEvent(value.programmaticEvent.event, value.programmaticEvent.flags, asks);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return AddEvent(value.launchCompletionEvent.event, value.launchCompletionEvent.flags, asks);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      if (value.deviceUpdatableKernelNode.deviceUpdatable == 0) return CUDA_SUCCESS;
      NoteUnsupportedAttribute(attribute.id);
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      NoteUnsupportedAttribute(attribute.id);
      return CUDA_ERROR_INVALID_VALUE;
  }
  static_assert((wire::kLaunchAttributesKnown & 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) != 0);
  to.set |= 1u << attribute.id;
  return CUDA_SUCCESS;
}

// Removes attributes without effect. A cluster of one block has one: some instructions work only in
// clusters.
void DropWhatAsksForNothing(wire::LaunchAttributes* attributes) {
  if (attributes->cooperative == 0) attributes->set &= ~(1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  if (attributes->programmatic_serialization == 0) {
    attributes->set &= ~(1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  }
}

}  // namespace

CUresult ReadLaunchAttributes(const CUlaunchAttribute* attributes, unsigned count,
                              LaunchAsks* asks) {
  *asks = {};
  asks->list = attributes;
  asks->list_count = count;
  if (count != 0 && attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    CUDA_RETURN_IF_ERROR(Read(attributes[i], asks));
  }
  DropWhatAsksForNothing(&asks->attributes);
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
