// SPDX-License-Identifier: Apache-2.0
// What --schedulers only does: keeps the schedulers of the node running, in a pod of their own that an upgrade of the
// agent does not restart. Called from main's thread. Owns neither argument; both outlive the call.
#pragma once

#include <atomic>
#include <functional>

#include "agent/clock.h"
#include "agent/supervisor/supervisor.h"

namespace gpuloom {

// Until `stop_requested`; calls `each_time` a few times a second, between the supervisor's ticks. The end of this process is the end of its container, and with it of
// everything there: what the supervisor has started may then end in order, for kStopTimeout.
void RunSchedulersOnly(Supervisor* supervisor, Clock* clock, const std::function<void()>& each_time,
                       const std::atomic<bool>& stop_requested);

// Less than the chart's terminationGracePeriodSeconds for schedulers.
inline constexpr Clock::Duration kStopTimeout = std::chrono::seconds(25);

}  // namespace gpuloom
