// SPDX-License-Identifier: Apache-2.0
// The kubelet's requests that the agent has refused, to explain why a pod does not start: for each call the number of
// requests and of refusals, and the latest reasons. Owned by NodeAgent. Safe from any thread; nothing fails.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "proto/sync/mutex.h"

namespace gpuloom {

struct RefusedRequest {
  std::string call;
  std::string reason;
  uint64_t times = 0;              // more than 1 because a kubelet tries again
  std::string pod_namespace = {};  // empty: it was not known yet
  bool operator==(const RefusedRequest&) const = default;
};

class RefusedRequests {
 public:
  // As many as people read. Anybody who creates pods can cause refusals, so only the latest stay; of namespaces that have
  // many, fewer (agent/node/fair_cut.h).
  static constexpr size_t kMostKept = 20;
  // A reason names a pod, a place in the policy and what to do.
  static constexpr size_t kMostReasonBytes = 1024;

  // `calls`: the calls whose counts start at 0; others have none until their first request.
  explicit RefusedRequests(const std::vector<std::string>& calls);

  // Counts a request of the kubelet. If it is refused, Add is called, too.
  void CountRequest(const std::string& call);
  void Add(const std::string& call, const std::string& reason,
           const std::string& pod_namespace = "");
  std::map<std::string, uint64_t> Counts() const;
  std::map<std::string, uint64_t> Requests() const;  // including those that were refused
  std::vector<RefusedRequest> Latest() const;        // the latest first

 private:
  mutable Mutex mutex_;
  std::map<std::string, uint64_t> counts_ GPULOOM_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> requests_ GPULOOM_GUARDED_BY(mutex_);
  std::deque<RefusedRequest> latest_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
