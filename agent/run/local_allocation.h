// SPDX-License-Identifier: Apache-2.0
// What `gpuloom run` tells the scheduler about its tenant, in the role that the node's agent has in a cluster. Pure;
// safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "agent/run/command_line.h"
#include "proto/control/messages.h"

namespace gpuloom::run {

struct LocalAllocation {
  control::AddAllocation add;
  control::BindAllocation bind;
};

// `name` and `path` are the tenant's folder's. False with a message: the quota is more than the GPU has, or the path
// does not fit.
[[nodiscard]] bool Describe(const CommandLine& line, const std::string& name,
                            const std::string& path, uint64_t device_memory_bytes,
                            LocalAllocation* allocation, std::string* error);

}  // namespace gpuloom::run
