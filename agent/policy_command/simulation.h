// SPDX-License-Identifier: Apache-2.0
// What tenants got on simulated GPUs, and the answers that `gpuloom policy simulate` makes of it. Pure; safe from any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/simulator/command_line.h"

namespace gpuloom {

struct SimulatedTenant {
  simulator::TenantSpec spec;
  uint32_t gpu = 0;
  simulator::TenantResult result;
};

struct Simulation {
  std::vector<std::string> spaces;  // names of namespaces, by their number in the specs
  uint64_t span_ns = 0;
  std::vector<SimulatedTenant> tenants;  // in the order of the arguments
  struct Gpu {
    uint64_t busy_ns = 0;
    uint64_t wasted_ns = 0;  // it was idle, and somebody had queued work
  };
  std::vector<Gpu> gpus;
};

// The first tenant is on the first GPU, the second one on the second, and so on in turn.
Simulation SimulateGpus(const simulator::Arguments& arguments, uint32_t gpus);

// A row for each class of each namespace.
std::string SimulationTable(const Simulation& simulation);
// All of it: GPUs, namespaces, tenants.
Json SimulationDocument(const Simulation& simulation);

}  // namespace gpuloom
