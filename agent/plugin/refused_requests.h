// SPDX-License-Identifier: Apache-2.0
// What the agent has refused the kubelet, for whoever asks why a pod does not start: how often each call was, of how
// many requests, and the latest reasons. Safe from any thread.
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
  uint64_t times = 0;  // a kubelet tries again
  bool operator==(const RefusedRequest&) const = default;
};

class RefusedRequests {
 public:
  // As many as people read. Anybody who creates pods can cause refusals: the latest ones stay.
  static constexpr size_t kMostKept = 20;
  // A reason names a pod, a place in the policy and what to do.
  static constexpr size_t kMostReasonBytes = 1024;

  // `calls`: those that are counted, from the beginning.
  explicit RefusedRequests(const std::vector<std::string>& calls);

  // The kubelet asks; whether it is refused, Add says.
  void CountRequest(const std::string& call);
  void Add(const std::string& call, const std::string& reason);
  std::map<std::string, uint64_t> Counts() const;
  std::map<std::string, uint64_t> Requests() const;  // those that were refused included
  std::vector<RefusedRequest> Latest() const;        // the latest first

 private:
  mutable Mutex mutex_;
  std::map<std::string, uint64_t> counts_ GPULOOM_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> requests_ GPULOOM_GUARDED_BY(mutex_);
  std::deque<RefusedRequest> latest_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
