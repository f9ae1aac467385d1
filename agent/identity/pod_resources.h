// SPDX-License-Identifier: Apache-2.0
// Which container holds which of our device IDs, according to the kubelet. Identity and garbage collection rest on this
// interface; MakePodResourcesClient makes the real implementation, over gRPC. Implementations are safe from any thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/clock.h"
#include "agent/identity/allocation.h"

namespace gpuloom {

struct ContainerDevices {
  PodContainer owner;
  std::vector<std::string> device_ids;
  // The names of our resources that these devices belong to; a container should have only one.
  std::set<std::string> resources = {};
};

class PodResources {
 public:
  virtual ~PodResources() = default;
  // Returns the containers that hold at least one device of our resources (resource_name.h). Unavailable, with a
  // message that starts "kubelet:", if the kubelet does not answer in time or its answer cannot be right: names that
  // no cluster has, or more than the kubelet's own clients accept.
  virtual absl::StatusOr<std::vector<ContainerDevices>> List() = 0;
};

std::unique_ptr<PodResources> MakePodResourcesClient(const std::string& socket_path,
                                                     const std::string& resource_name,
                                                     Clock::Duration timeout);

}  // namespace gpuloom
