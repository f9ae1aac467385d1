// SPDX-License-Identifier: Apache-2.0
// Something that happened on this node and that the owner of a pod or the cluster's operator should see in Kubernetes'
// events. Plain value.
#pragma once

#include <string>

namespace gpuloom {

struct Event {
  bool is_warning = true;
  // The pod that it is about; an empty `pod` means the node.
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string reason;    // "GpuSick": one capitalised word, as in Kubernetes; from our own table
  std::string message;   // one line
  bool is_said = false;  // it is in the log already
  // Separates events of the same reason and object: for the node, the GPU; for a pod, the allocation, because the next
  // pod of that name is another one.
  std::string instance = {};
};

}  // namespace gpuloom
