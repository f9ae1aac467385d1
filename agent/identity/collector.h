// SPDX-License-Identifier: Apache-2.0
// Decides which allocations are over. The kubelet never says so: an allocation is over when PodResources has ceased to
// show its device IDs for its pod. A value; its owner, the allocator, guards it with a mutex. Removes nothing itself.
// Time is an argument.
//
// Careful on purpose, because removing a directory ends a running container's CUDA work:
//  - an allocation that has no pod yet is not judged in its first minutes, and none in the kubelet's (a restarted kubelet
//    lists no pods at first), nor before a kubelet was seen; an agent's own start changes nothing;
//  - an allocation must have been missing for some time, not only once, unless its devices have passed to a later pod;
//  - without a list from the kubelet nothing is judged.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "agent/identity/allocation.h"
#include "agent/identity/pod_resources.h"

namespace gpuloom {

struct CollectorTimes {
  Clock::Duration grace =
      std::chrono::minutes(5);  // after Allocate, until it has a pod; after the kubelet (re)started
  Clock::Duration missing = std::chrono::minutes(1);  // how long it must have been gone
};

class Collector {
 public:
  explicit Collector(CollectorTimes times) : times_(times) {}

  // Says when the running kubelet was first seen: its lists are ignored until CollectorTimes::grace later, and without it
  // for ever.
  void KubeletSeen(Clock::Time since) { quiet_until_ = since + times_.grace; }

  // Returns the names of the allocations that are over.
  std::vector<std::string> Judge(const std::vector<Allocation>& allocations,
                                 const std::vector<ContainerDevices>& held, Clock::Time now);

  // Whether the last list has not shown the allocation's pod with its devices. Nothing is ended for that alone, but
  // nothing is charged, either.
  bool IsGone(const std::string& name) const { return gone_.contains(name); }

 private:
  const CollectorTimes times_;
  Clock::Time quiet_until_ = Clock::Time::max();
  std::map<std::string, Clock::Time> missing_since_;
  std::set<std::string> gone_;
};

// How many of its devices each bound allocation, by name, has left: a device that a later one was bound with is that
// one's, be it another pod's or that of the container behind an init container. `allocations`: oldest first.
std::map<std::string, size_t> DevicesLeft(const std::vector<Allocation>& allocations);

}  // namespace gpuloom
