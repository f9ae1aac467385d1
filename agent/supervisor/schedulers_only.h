// SPDX-License-Identifier: Apache-2.0
// What --schedulers only does: keeps the schedulers of the node running, in a pod of their own that an upgrade of the
// agent does not restart. Called from main's thread. Owns neither argument; both outlive the call.
#pragma once

#include <atomic>

#include "agent/clock.h"
#include "agent/supervisor/supervisor.h"

namespace gpuloom {

// Returns after `stop_requested` has become true. When this process ends, its container ends with everything in it:
// so it first gives the schedulers that the supervisor has started up to kStopTimeout to end in order.
void RunSchedulersOnly(Supervisor* supervisor, Clock* clock,
                       const std::atomic<bool>& stop_requested);

// Less than the chart's terminationGracePeriodSeconds for schedulers.
inline constexpr Clock::Duration kStopTimeout = std::chrono::seconds(25);

}  // namespace gpuloom
