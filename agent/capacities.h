// SPDX-License-Identifier: Apache-2.0
// Computes what each GPU of the node can give to tenants. Called from main, once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// Returns the capacities by GPU UUID and logs them. A GPU that is too small for the reserve is included, but has no
// slots (NothingLeft, agent/policy/capacity.h). InvalidArgument if `reserve` does not parse.
absl::StatusOr<std::map<std::string, Capacity>> CapacitiesOf(const std::vector<Gpu>& gpus,
                                                             int slots, const std::string& reserve);

}  // namespace gpuloom
