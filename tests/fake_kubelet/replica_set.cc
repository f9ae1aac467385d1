// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/replica_set.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace gpuloom {

std::string FakeReplicaSet::Insufficient() const {
  std::map<std::string, size_t> wanted;
  for (const FakeContainerSpec& container : pod_.containers) {
    wanted[container.resource] += static_cast<size_t>(container.slots);
  }
  for (const auto& [resource, count] : wanted) {
    if (kubelet_->free_devices(resource) >= count) continue;
    return absl::StrCat("0/1 nodes are available: 1 Insufficient ",
                        resource.empty() ? kubelet_->resource_name() : resource, ".");
  }
  return "";
}

void FakeReplicaSet::Sync() {
  if (is_running_) return;
  pending_because_ = Insufficient();
  if (!pending_because_.empty()) return;
  FakePodSpec pod = pod_;
  pod.name = absl::StrCat(pod_.name, "-", failed_.size());
  is_running_ = kubelet_->Admit(pod).ok();
  if (!is_running_) failed_.push_back(*kubelet_->StatusOf(pod.pod_namespace, pod.name));
}

}  // namespace gpuloom
