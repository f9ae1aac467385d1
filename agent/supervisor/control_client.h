// SPDX-License-Identifier: Apache-2.0
// The SchedulerClient that speaks proto/control over <scheduler's directory>/control.sock. The caller owns it; it owns
// the connection, which lives as long as the client, and stays lost once it is. Safe from any thread: a lock makes one
// call after the other, each bounded by the control client's time limit.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

// Connects and exchanges the hello. NotFound if no scheduler listens there; FailedPrecondition, in the scheduler's
// words, if it refuses (another version).
absl::StatusOr<std::shared_ptr<SchedulerClient>> ConnectToScheduler(const std::string& directory);

}  // namespace gpuloom
