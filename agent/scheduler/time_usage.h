// SPDX-License-Identifier: Apache-2.0
// Sums of what executors report of their sessions (control::TimeUsage, control::WorkCounts). Reports are untrusted: a
// figure never goes back, and a sum stops at the largest number instead of wrapping. Pure.
#pragma once

#include "proto/control/messages.h"

namespace gpuloom::scheduler {

// Takes over each figure that is larger than the known one.
void RaiseTo(const control::TimeUsage& reported_untrusted, control::TimeUsage* known);

void AddTo(const control::TimeUsage& usage, control::TimeUsage* sum);

void RaiseTo(const control::WorkCounts& reported_untrusted, control::WorkCounts* known);
void AddTo(const control::WorkCounts& counts, control::WorkCounts* sum);
void AddTo(uint64_t figure, uint64_t* sum);

}  // namespace gpuloom::scheduler
