// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/resolver.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "agent/cat.h"

namespace gpuloom {

absl::StatusOr<std::optional<PodContainer>> MatchPod(const std::vector<ContainerDevices>& held,
                                                     const std::vector<std::string>& device_ids) {
  // As sets: the order in which the kubelet names IDs means nothing.
  const std::set<std::string> wanted(device_ids.begin(), device_ids.end());
  std::optional<PodContainer> answer;
  bool is_exact = false;
  for (const ContainerDevices& container : held) {
    const std::set<std::string> has(container.device_ids.begin(), container.device_ids.end());
    const bool overlaps =
        std::any_of(has.begin(), has.end(), [&](const auto& id) { return wanted.contains(id); });
    if (!overlaps) continue;
    // Every container is looked at, even behind an exact match: a second pod is a contradiction
    // wherever it stands in the list.
    if (answer.has_value() && (answer->pod_namespace != container.owner.pod_namespace ||
                               answer->pod != container.owner.pod)) {
      return absl::FailedPreconditionError(
          Cat("identity: the kubelet says that both ", answer->pod_namespace, "/", answer->pod,
              " and ", container.owner.pod_namespace, "/", container.owner.pod, " hold ",
              absl::StrJoin(device_ids, ", "), "; delete one of the pods"));
    }
    if (container.resources.size() > 1) {
      return absl::FailedPreconditionError(Cat(
          "identity: pod ", container.owner.pod_namespace, "/", container.owner.pod, ", container ",
          container.owner.container, " asks for ", absl::StrJoin(container.resources, " and "),
          ", but a container has one CUDA device: let it ask for one of them"));
    }
    if (has == wanted && !is_exact) {
      answer = container.owner;
      is_exact = true;
    } else if (!answer.has_value()) {
      // Kept for want of a better match: an exact one may come later in the list.
      answer = PodContainer{container.owner.pod_namespace, container.owner.pod, ""};
    }
  }
  return answer;
}

absl::StatusOr<PodContainer> Resolver::Resolve(const std::vector<std::string>& device_ids) {
  const Clock::Time start = clock_->Now();
  // The kubelet's list may be behind its own call.
  for (int attempt = 1;; ++attempt) {
    const absl::StatusOr<std::vector<ContainerDevices>> held = pod_resources_->List();
    absl::Status trouble = held.status();
    if (held.ok()) {
      const absl::StatusOr<std::optional<PodContainer>> match = MatchPod(*held, device_ids);
      // Contradicting evidence does not get better by asking again.
      if (!match.ok()) return match.status();
      if (match->has_value()) return **match;
      trouble = absl::NotFoundError(
          Cat("identity: the kubelet's PodResources list shows no pod that holds ",
              absl::StrJoin(device_ids, ", "), " (asked ", attempt,
              " times): if this is an init container, give one of the pod's app containers ",
              "the same resource, because init containers are left out of that list"));
    }
    if (clock_->Now() + pause_ >= start + patience_) return trouble;
    clock_->SleepFor(pause_);
  }
}

}  // namespace gpuloom
