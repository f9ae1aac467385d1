// SPDX-License-Identifier: Apache-2.0
// What gpuloom-agent does until it is told to end: it finds the node's GPUs, looks after their schedulers, speaks to the
// kubelet while it is the agent in charge, and begins again where GPUs were missing and have come.
//
// The calling thread drives everything that repeats; gRPC's threads answer the kubelet. Call it once, before the process has
// another thread: it sets environment variables that a driver reads.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "agent/command_line.h"
#include "agent/inventory/gpu_list.h"

namespace gpuloom {

// Returns soon after *stop has become true, or with what keeps this agent from serving. Where a driver hangs, a thread of
// this may be left behind (FaultPoll::IsOneLeftBehind).
absl::Status Serve(const CommandLine& line, const std::atomic<bool>& stop);

// Where the GPUs are looked for, and which of them pods hold.
InventorySources SourcesOf(const CommandLine& line);

}  // namespace gpuloom
