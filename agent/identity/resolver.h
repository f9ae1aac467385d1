// SPDX-License-Identifier: Apache-2.0
// Finds out which container is being started: the kubelet's PreStartContainer gives only device IDs, and
// PodResources' List says who holds them. MatchPod is pure; Resolver repeats it until there is an answer. Owns
// neither PodResources nor the clock, which outlive it. Safe from any thread.
//
// An answer is given only on evidence: NotFound if no container holds the devices, FailedPrecondition if two pods do;
// both refuse the container. There are no default identities.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/clock.h"
#include "agent/identity/pod_resources.h"

namespace gpuloom {

// The container that holds exactly these IDs; otherwise the one pod whose containers hold some of them: then an init
// container is being started (the list leaves those out, and app containers take over their IDs), and the container's
// name stays empty. nullopt if no container holds any. A container that holds devices of several of our resources is an
// error.
absl::StatusOr<std::optional<PodContainer>> MatchPod(const std::vector<ContainerDevices>& held,
                                                     const std::vector<std::string>& device_ids);

class Resolver {
 public:
  // The kubelet waits 30 s for PreStartContainer; a failure is reported after `patience`, well before that.
  Resolver(PodResources* pod_resources, Clock* clock,
           Clock::Duration patience = std::chrono::seconds(5),
           Clock::Duration pause = std::chrono::milliseconds(250))
      : pod_resources_(pod_resources), clock_(clock), patience_(patience), pause_(pause) {}

  absl::StatusOr<PodContainer> Resolve(const std::vector<std::string>& device_ids);

 private:
  PodResources* const pod_resources_;
  Clock* const clock_;
  const Clock::Duration patience_;
  const Clock::Duration pause_;
};

}  // namespace gpuloom
