// SPDX-License-Identifier: Apache-2.0
// What each GPU of the node has to give. Called from main, once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// By GPU uuid; says it in the log. One that is too small for the reserve is among them, and has no slots (NothingLeft,
// agent/policy/capacity.h). InvalidArgument if `reserve` does not parse.
absl::StatusOr<std::map<std::string, Capacity>> CapacitiesOf(const std::vector<Gpu>& gpus,
                                                             int slots, const std::string& reserve);

}  // namespace gpuloom
