// SPDX-License-Identifier: Apache-2.0
// Decides whether executors that end while tenants use them point to a fault of the GPU. A tenant can end its own
// executor at will, so losses of a single namespace never do, however many there are. Losses of two namespaces within
// kWindow have the GPU probed; the probe alone decides whether it is sick (agent/inventory/sickness.h).
//
// One value for each GPU, owned by GpuStandings, used from one thread; keeps nothing of the report. Time is an
// argument.
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

  // Considers the losses since the last report; those before the first report do not count. After it has returned true,
  // two namespaces must each lose another executor before it does so again.
  bool PointToGpu(const GpuReport& report, Clock::Time now);

 private:
  bool has_looked_ = false;
  std::map<std::string, uint64_t> known_;    // by trust domain
  std::map<std::string, Clock::Time> last_;  // by namespace
};

}  // namespace gpuloom
