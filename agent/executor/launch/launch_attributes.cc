// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/launch/launch_attributes.h"

namespace gpuloom::executor {

bool KnowsAttributes(const wire::LaunchAttributes& attributes_untrusted) {
  return (attributes_untrusted.set & ~wire::kLaunchAttributesKnown) == 0;
}

// Each attribute is added once at most, and there are fewer than list_ has places.
CUlaunchAttributeValue& LaunchConfig::Add(CUlaunchAttributeID id) {
  CUlaunchAttribute& attribute = list_[config_.numAttrs++];
  attribute.id = id;
  return attribute.value;
}

// The tenant's attributes are one bit each and a field with the value. A field without its bit is
// ignored, and one with it goes to the driver as it is, but for booleans, which become 0 or 1.
LaunchConfig::LaunchConfig(const uint32_t (&grid)[3], const uint32_t (&block)[3],
                           uint32_t dynamic_shared_bytes, CUstream stream,
                           const wire::LaunchAttributes& attributes) {
  config_.gridDimX = grid[0];
  config_.gridDimY = grid[1];
  config_.gridDimZ = grid[2];
  config_.blockDimX = block[0];
  config_.blockDimY = block[1];
  config_.blockDimZ = block[2];
  config_.sharedMemBytes = dynamic_shared_bytes;
  config_.hStream = stream;
  config_.attrs = list_.data();
  const auto has = [&](CUlaunchAttributeID id) { return (attributes.set >> id & 1u) != 0; };
  if (has(CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) {
    Add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = attributes.cooperative != 0 ? 1 : 0;
  }
  if (has(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)) {
    auto& size = Add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
    size.x = attributes.cluster[0];
    size.y = attributes.cluster[1];
    size.z = attributes.cluster[2];
  }
  if (has(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)) {
    auto& size = Add(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION).preferredClusterDim;
    size.x = attributes.preferred_cluster[0];
    size.y = attributes.preferred_cluster[1];
    size.z = attributes.preferred_cluster[2];
  }
  if (has(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)) {
    Add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        .clusterSchedulingPolicyPreference =
        static_cast<CUclusterSchedulingPolicy>(attributes.cluster_scheduling_policy);
  }
  if (has(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)) {
    Add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed =
        attributes.programmatic_serialization != 0 ? 1 : 0;
  }
  if (has(CU_LAUNCH_ATTRIBUTE_PRIORITY)) {
    Add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = attributes.priority;
  }
  if (has(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)) {
    Add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).memSyncDomainMap = {
        static_cast<unsigned char>(attributes.sync_domain_map),
        static_cast<unsigned char>(attributes.sync_domain_map >> 8)};
  }
  if (has(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)) {
    Add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain =
        static_cast<CUlaunchMemSyncDomain>(attributes.sync_domain);
  }
  if (has(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)) {
    Add(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout =
        attributes.shared_memory_carveout;
  }
}

}  // namespace gpuloom::executor
