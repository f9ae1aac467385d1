// SPDX-License-Identifier: Apache-2.0
// An allocation as text, one YAML map. Pure; safe from any thread. Parsing refuses text that is incomplete or of a
// later format, and skips unknown keys, so that an agent may be rolled back.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "agent/identity/allocation.h"

namespace gpuloom {

std::string FormatRecord(const Allocation& allocation);
absl::StatusOr<Allocation> ParseRecord(const std::string& text);

}  // namespace gpuloom
