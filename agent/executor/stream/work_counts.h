// SPDX-License-Identifier: Apache-2.0
// Counts what a session makes the device do (control::WorkCounts). Plain additions; ring thread only.
#pragma once

#include <cstdint>

#include "agent/arbiter/domain_arbiter.h"
#include "proto/control/messages.h"

namespace gpuloom::executor {

struct StreamCommand;

// Counts the command if it is a copy that touches the device. `engine` is the command's engine (EngineOf). Copies
// inside graphs are not counted.
void CountCopy(const StreamCommand& command, arbiter::Engine engine, control::WorkCounts* counts);

void Observe(uint64_t took_ns, control::Histogram* histogram);

}  // namespace gpuloom::executor
