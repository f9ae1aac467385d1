// The end of an executor that could not start. Called from main.
#pragma once

#include <string>

#include "proto/control/connection.h"

namespace gpuloom::executor {

// Logs `error` and tells the scheduler why there will be no executor; the socket is then closed.
// `driver_failed`: in a process confined less it might start.
void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed = false);

}  // namespace gpuloom::executor
