// SPDX-License-Identifier: Apache-2.0
// Terminates an executor that could not start. Called from Serve (service.h).
#pragma once

#include <string>

#include "proto/control/connection.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

// Whether a driver that does not start may have met confinement: not if the device has no memory left, say. A file or a
// system call that is refused shows as many errors.
bool MayBeConfinement(CUresult result);

// Logs `error`, notifies the scheduler why there will be no executor, and closes the socket. `driver_failed`: the
// driver did not start, which it may do in a less confined process (MayBeConfinement).
void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed = false);

// Returns true if an executor of this build can serve a scheduler that speaks this version of the control
// protocol: any minor of our major. Returns false with a message that names both and the next step.
[[nodiscard]] bool CanServeScheduler(const std::string& control_version, std::string* error);

}  // namespace gpuloom::executor
