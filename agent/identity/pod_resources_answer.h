// SPDX-License-Identifier: Apache-2.0
// What a PodResources answer says about our devices, and whether that can be. Pure, safe from any thread. The answer
// is the kubelet's, or of a process that has taken its socket's place: nothing in it is used before it has been
// validated here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/identity/pod_resources.h"
#include "proto/kubelet/podresources/v1/api.pb.h"

namespace gpuloom {

// Containers that hold at least one device of `resource_name` or one of its shapes. InvalidArgument, with what it was
// in one line, for names that no cluster has and more devices than a container can have; then nothing else of the
// answer is to be believed.
absl::StatusOr<std::vector<ContainerDevices>> ReadAnswer(
    const v1::ListPodResourcesResponse& answer_untrusted, const std::string& resource_name);

}  // namespace gpuloom
