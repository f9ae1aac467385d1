// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/refused_requests.h"

#include <algorithm>

#include "agent/node/fair_cut.h"
#include "agent/node/one_line.h"

namespace gpuloom {

RefusedRequests::RefusedRequests(const std::vector<std::string>& calls) {
  // A counter that is there from the beginning has an increase at its first refusal; to Prometheus
  // one that appears with 1 has none.
  for (const std::string& call : calls) counts_[call] = requests_[call] = 0;
}

void RefusedRequests::CountRequest(const std::string& call) {
  const MutexLock lock(mutex_);
  ++requests_[call];
}

void RefusedRequests::Add(const std::string& call, const std::string& reason,
                          const std::string& pod_namespace) {
  RefusedRequest refusal = {call, OneLine(reason, kMostReasonBytes), 1, pod_namespace};
  const MutexLock lock(mutex_);
  ++counts_[call];
  const auto same = std::ranges::find_if(latest_, [&](const RefusedRequest& known) {
    return known.call == refusal.call && known.reason == refusal.reason;
  });
  // A kubelet that repeats a request every few seconds would otherwise push out all other reasons.
  if (same != latest_.end()) {
    refusal.times += same->times;
    latest_.erase(same);
  }
  latest_.push_front(std::move(refusal));
  CutFairly(&latest_, kMostKept);
}

std::map<std::string, uint64_t> RefusedRequests::Counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

std::map<std::string, uint64_t> RefusedRequests::Requests() const {
  const MutexLock lock(mutex_);
  return requests_;
}

std::vector<RefusedRequest> RefusedRequests::Latest() const {
  const MutexLock lock(mutex_);
  return {latest_.begin(), latest_.end()};
}

}  // namespace gpuloom
