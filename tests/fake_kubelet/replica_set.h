// SPDX-License-Identifier: Apache-2.0
// A ReplicaSet of one pod, and the cluster's scheduler, as the two turn around a node's kubelet: a pod is placed when the node
// has as many devices left as it asks for, on whatever GPUs they are; one that has failed stays in the cluster and is replaced
// at once; one for which there is no room is pending.
//
// It has no thread: each Sync is a turn of both. The kubelet must live as long.
#pragma once

#include <string>
#include <vector>

#include "tests/fake_kubelet/fake_kubelet.h"

namespace gpuloom {

class FakeReplicaSet {
 public:
  // The name of `pod` is the ReplicaSet's own; its pods' have a number behind it.
  FakeReplicaSet(FakeKubelet* kubelet, FakePodSpec pod) : kubelet_(kubelet), pod_(std::move(pod)) {}

  void Sync();

  bool is_running() const { return is_running_; }
  // As the pending pod's event FailedScheduling says it; empty: none is pending.
  const std::string& pending_because() const { return pending_because_; }
  // All that have failed so far.
  const std::vector<FakePodStatus>& failed() const { return failed_; }

 private:
  // Empty: the node has enough.
  std::string Insufficient() const;

  FakeKubelet* const kubelet_;
  const FakePodSpec pod_;
  bool is_running_ = false;
  std::string pending_because_;
  std::vector<FakePodStatus> failed_;
};

}  // namespace gpuloom
