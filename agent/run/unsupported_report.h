// SPDX-License-Identifier: Apache-2.0
// Reports which unsupported CUDA features the command has asked for. One thread.
#pragma once

#include <string>

#include "proto/control/client.h"

namespace gpuloom::run {

// The line for the user; empty when there was nothing.
std::string UnsupportedLine(const control::AllocationState& state);

// Writes the line to stderr after the command has ended. Its last reports may still be on their way while its sessions
// end: waits for them for at most a quarter of a second.
void SayUnsupported(const std::string& allocation, control::Client* client);

}  // namespace gpuloom::run
