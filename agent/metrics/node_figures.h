// SPDX-License-Identifier: Apache-2.0
// What the agent itself knows about its node, for the metrics. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/inventory/gpu.h"
#include "agent/node/gpu_standing.h"
#include "agent/plugin/refused_requests.h"

namespace gpuloom {

struct NodeFigures {
  struct OneGpu {
    Gpu gpu;
    GpuStanding standing;  // as reported to the kubelet
  };
  std::vector<OneGpu> gpus;
  // What else was found of the node's GPUs, in a line: some that cannot even be named, or why there are none. And whether it has
  // one that cannot be used and is not above.
  std::string node_trouble;
  bool has_unusable_gpu = false;
  uint64_t allocations = 0;        // directories that containers may have mounted
  uint64_t bound_allocations = 0;  // those of them whose pod is known
  // Slots that bound allocations hold now, by the allocation's name: Allocator::SlotsHeld.
  std::map<std::string, uint64_t> slots_held;
  uint64_t watches = 0;  // kubelets' streams of the device list; 0: no pod can be placed here
  uint64_t registrations = 0;
  // Failed calls to the kubelet, and the kubelet's requests and how many of them were refused, all by call. The keys
  // are the agent's own.
  std::map<std::string, uint64_t> kubelet_errors;
  std::map<std::string, uint64_t> requests;
  std::map<std::string, uint64_t> refusals;
  std::vector<RefusedRequest> latest_refusals;  // the latest first
  uint64_t events_posted = 0;
  uint64_t events_dropped = 0;
  bool has_policy = false;
  uint64_t policy_generation = 0;
  std::string policy_trouble;  // why the file is not what is in force
  // Which containers do not have what it grants them, and why, in a line each: Allocator::FailedGrants.
  std::vector<std::string> failed_grants;
};

}  // namespace gpuloom
