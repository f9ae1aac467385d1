// SPDX-License-Identifier: Apache-2.0
// Which allocations are over. The kubelet never says so: an allocation is over when PodResources no
// longer shows its IDs for its pod. Not thread-safe: one thread looks; `now` is an argument.
//
// Careful on purpose, because taking a directory away ends a running container's CUDA work:
//  - nothing is judged in its first minutes, nor in the kubelet's (a restarted kubelet lists no
//  pods at first), nor before a kubelet was seen; an agent's own start changes nothing;
//  - an allocation must have been gone for a while, not once;
//  - no list, no judgement.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/identity/allocation.h"
#include "agent/identity/pod_resources.h"

namespace gpuloom {

struct CollectorTimes {
  Clock::Duration grace =
      std::chrono::minutes(5);  // after Allocate, and after the kubelet (re)started
  Clock::Duration missing = std::chrono::minutes(1);  // how long it must have been gone
};

class Collector {
 public:
  explicit Collector(CollectorTimes times) : times_(times) {}

  // The kubelet that runs was first seen then: until some time after its lists mean nothing.
  void KubeletSeen(Clock::Time since) { quiet_until_ = since + times_.grace; }

  // Names of the allocations that are over.
  std::vector<std::string> Judge(const std::vector<Allocation>& allocations,
                                 const std::vector<ContainerDevices>& held, Clock::Time now);

 private:
  const CollectorTimes times_;
  Clock::Time quiet_until_ = Clock::Time::max();
  std::map<std::string, Clock::Time> missing_since_;
};

}  // namespace gpuloom
