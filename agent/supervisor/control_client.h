// SPDX-License-Identifier: Apache-2.0
// The SchedulerClient that speaks proto/control over <scheduler's directory>/control.sock.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

// Connects and says hello. NotFound when no scheduler listens there; FailedPrecondition, with the
// scheduler's words, when it refuses (another version).
absl::StatusOr<std::shared_ptr<SchedulerClient>> ConnectToScheduler(const std::string& directory);

}  // namespace gpuloom
