// SPDX-License-Identifier: Apache-2.0
// Whether executors that end under a GPU's tenants point to the GPU. Whoever may run kernels ends his own at will, so those of
// one namespace never do, however many they are; those of two within a while have the GPU probed, which alone decides whether
// it is sick (agent/inventory/sickness.h).
//
// A value for each GPU; one thread. Time is an argument.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/clock.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

class ExecutorLosses {
 public:
  static constexpr Clock::Duration kWindow = std::chrono::minutes(10);

  // Of what has been lost since the last report; what was lost before the first is no news. Once it does, both
  // namespaces must lose one anew.
  bool PointToGpu(const GpuReport& report, Clock::Time now);

 private:
  bool has_looked_ = false;
  std::map<std::string, uint64_t> known_;    // by trust domain
  std::map<std::string, Clock::Time> last_;  // by namespace
};

}  // namespace gpuloom
