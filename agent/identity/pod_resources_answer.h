// SPDX-License-Identifier: Apache-2.0
// What a PodResources answer says about our devices, and whether that is possible. Pure; safe from any thread. The
// answer comes from the kubelet, or from a process that has replaced its socket: nothing in it is used before it has
// been validated here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/identity/pod_resources.h"
#include "proto/kubelet/podresources/v1/api.pb.h"

namespace gpuloom {

// Returns the containers that hold at least one device of `resource_name` or of one of its shapes. InvalidArgument,
// with the reason in one line, for names that no cluster has and for more devices than a container can have; then the
// whole answer is rejected.
absl::StatusOr<std::vector<ContainerDevices>> ReadAnswer(
    const v1::ListPodResourcesResponse& answer_untrusted, const std::string& resource_name);

}  // namespace gpuloom
