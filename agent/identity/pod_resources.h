// SPDX-License-Identifier: Apache-2.0
// Which container holds which of our device IDs, asked of the kubelet. The interface is what
// identity and garbage collection rest on; MakePodResourcesClient is the real one, over gRPC. Safe
// from any thread.
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
  // Of which of our resources; a container should have one.
  std::set<std::string> resources = {};
};

class PodResources {
 public:
  virtual ~PodResources() = default;
  // Containers that hold at least one device of our resources (resource_name.h). Unavailable, with a message that
  // starts "kubelet:", when the kubelet does not answer in time, or with what cannot be: names that no
  // cluster has, more than its own clients would take.
  virtual absl::StatusOr<std::vector<ContainerDevices>> List() = 0;
};

std::unique_ptr<PodResources> MakePodResourcesClient(const std::string& socket_path,
                                                     const std::string& resource_name,
                                                     Clock::Duration timeout);

}  // namespace gpuloom
