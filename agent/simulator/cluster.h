// SPDX-License-Identifier: Apache-2.0
// Many simulated GPUs and what their tenants got, as text. GPUs do not affect each other, so the result does not depend
// on the order in which they run. Pure functions: no clock, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/simulator/command_line.h"

namespace gpuloom::simulator {

// Tenants of all kinds: servers with bursts, trainings, notebooks and batch jobs, in three namespaces, with classes,
// and with narrow and wide kernels. On each GPU each namespace has a trust domain of its own, one for each of its pods,
// or shares one with others.
std::vector<GpuSpec> RandomCluster(uint32_t tenants, uint32_t gpus, uint64_t seed);

struct ClassResult {
  uint32_t tenants = 0;
  uint64_t charged_ns = 0;
  uint64_t kernels = 0;
  std::vector<uint64_t> latency_ns;  // of requests, sorted
  uint64_t longest_gap_ns = 0;
};

struct ClusterResult {
  ClassResult classes[arbiter::kPriorities];
  uint64_t busy_ns = 0;
  uint64_t charged_ns = 0;
  uint64_t remainder_ns = 0;  // not charged to anybody at the end of the span
  uint64_t wasted_ns = 0;
  uint64_t decisions = 0;
  uint64_t steps = 0;
};

ClusterResult RunCluster(const std::vector<GpuSpec>& gpus, uint64_t span_ns, uint64_t seed);

// What the tool prints: a line for each tenant if there is one GPU with named tenants, otherwise a line for each class.
std::string Report(const Arguments& arguments);

}  // namespace gpuloom::simulator
