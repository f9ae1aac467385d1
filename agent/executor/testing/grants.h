// SPDX-License-Identifier: Apache-2.0
// The scheduler's answers to an executor's memory requests, for tests: granted up to a quota and
// counted, allocated by the test's own driver. One thread only, except what is atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "proto/control/connection.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

class TestingGrants {
 public:
  explicit TestingGrants(const Driver* cuda) : cuda_(*cuda) {}

  // Returns false if the message is about something else.
  bool Answer(control::Connection* connection, const control::Incoming& in);

  // Granted and not returned.
  uint64_t in_use_bytes() const { return in_use_bytes_; }

  std::atomic<uint64_t> quota_bytes{uint64_t{1} << 40};
  std::atomic<bool> must_clear{false};
  std::atomic<uint64_t> refused_count{0};

 private:
  // Returns false beyond the quota.
  bool Grant(uint64_t size_bytes, control::MemoryGranted* granted);
  channel::UniqueFd MakeMemory(uint64_t size_bytes) const;

  const Driver& cuda_;
  std::atomic<uint64_t> in_use_bytes_{0};
  uint64_t last_memory_ = 0;
  std::map<uint64_t, uint64_t> memory_;  // id → size
};

}  // namespace gpuloom::executor
