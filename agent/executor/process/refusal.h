// SPDX-License-Identifier: Apache-2.0
// The end of an executor that could not start. Called from main.
#pragma once

#include <string>

#include "proto/control/connection.h"

namespace gpuloom::executor {

// Logs `error` and tells the scheduler why there will be no executor; the socket is then closed.
// `driver_failed`: in a process confined less it might start.
void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed = false);

// Whether an executor of this build can serve a scheduler that speaks this version of the control
// protocol: any minor of our major. False with a message that names both and the next step.
[[nodiscard]] bool CanServeScheduler(const std::string& control_version, std::string* error);

}  // namespace gpuloom::executor
