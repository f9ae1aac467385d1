// SPDX-License-Identifier: Apache-2.0
// Since when a tenant has its slots, according to the files beside its scheduler: the agent's record of the allocation,
// or the folder of `gpuloom run`. Reads files; safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "agent/answer/output.h"

namespace gpuloom::run {

// Unix time in seconds; 0: unknown. `folder` is the scheduler's, `allocation` the name that the scheduler reports.
int64_t SinceOf(const std::string& folder, const std::string& allocation);

// "2026-11-25 07:31:05"; UTC.
std::string TimeText(int64_t unix_s);
// Null if the time is unknown.
inline Json JsonOfTime(int64_t unix_s) { return unix_s == 0 ? Json() : Json(unix_s); }

}  // namespace gpuloom::run
