// SPDX-License-Identifier: Apache-2.0
// What happened on this node that whoever runs a pod, or the cluster, should read in Kubernetes' events. Plain values.
#pragma once

#include <string>

namespace gpuloom {

struct Event {
  bool is_warning = true;
  // Of a pod; an empty pod means the node.
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string reason;    // "GpuSick": one word, in capitals as Kubernetes has it; of our own table
  std::string message;   // one line
  bool is_said = false;  // it is in the log already
  // What one reason of one object is told of apart: the GPU, of a node's; the allocation, of a pod's, because the
  // next pod of that name is another.
  std::string instance = {};
};

}  // namespace gpuloom
