// SPDX-License-Identifier: Apache-2.0
// Counts what a session has the device do (control::WorkCounts). Plain additions; ring thread only.
#pragma once

#include <cstdint>

#include "proto/control/messages.h"

namespace gpuloom::executor {

struct StreamCommand;

// Counts the command if it is a copy that touches the device. Copies inside graphs are not seen.
void CountCopy(const StreamCommand& command, control::WorkCounts* counts);

void Observe(uint64_t took_ns, control::Histogram* histogram);

}  // namespace gpuloom::executor
