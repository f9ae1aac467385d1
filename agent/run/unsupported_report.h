// SPDX-License-Identifier: Apache-2.0
// Says what the command has asked of CUDA that is not supported. One thread.
#pragma once

#include <string>

#include "proto/control/client.h"

namespace gpuloom::run {

// The line for the user; empty when there was nothing.
std::string UnsupportedLine(const control::AllocationState& state);

// To stderr, after the command has ended. Its last words may still be on their way while its
// sessions end: waits for them, at most a quarter of a second.
void SayUnsupported(const std::string& allocation, control::Client* client);

}  // namespace gpuloom::run
