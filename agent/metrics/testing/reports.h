// SPDX-License-Identifier: Apache-2.0
// What schedulers report, made up for tests.
#pragma once

#include <map>
#include <string>

#include "agent/supervisor/scheduler_client.h"
#include "proto/control/connection.h"

namespace gpuloom {

inline const char kGpu[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
inline const char kOtherGpu[] = "GPU-bbbbbbbb-0000-0000-0000-000000000002";

inline control::AllocationState AllocationOf(const std::string& name,
                                             const std::string& pod_namespace,
                                             const std::string& pod) {
  control::AllocationState state{};
  control::SetText(state.name, name.c_str());
  control::SetText(state.pod_namespace, pod_namespace.c_str());
  control::SetText(state.pod, pod.c_str());
  control::SetText(state.container, "main");
  control::SetText(state.trust_domain, ("namespace/" + pod_namespace).c_str());
  state.bound = 1;
  state.slots = 2;
  state.sessions = 1;
  state.memory_quota_bytes = 2048;
  return state;
}

// With all that an allocation can have, `factor` times.
inline void Use(control::AllocationState* state, uint64_t factor) {
  state->kernels_launched = 10 * factor;
  state->long_kernels = factor;
  state->time = {1'000'000'000 * factor, 200'000'000 * factor, 300'000'000 * factor,
                 50'000'000 * factor,    40'000'000 * factor,  30'000'000 * factor};
  state->work.batches = 5 * factor;
  state->work.copies_to_device = 6 * factor;
  state->work.bytes_to_device = 600 * factor;
  state->work.queue.counts[0] = 3 * factor;
  state->work.queue.counts[control::kHistogramCounts - 1] = factor;
  state->work.queue.sum_ns = 20'000'000'000 * factor;
  state->memory_refused_count = factor;
  state->sessions_begun = 2 * factor;
  state->sessions_refused = 3 * factor;
  for (uint64_t& faults : state->faults) faults = factor;
}

// A scheduler that has run for so long; its engines were busy for as long as the allocations were charged.
inline GpuReport ReportOf(std::vector<control::AllocationState> allocations, double running_s) {
  GpuReport report;
  report.tells_gpu = true;
  control::SetText(report.gpu.uuid, kGpu);
  control::SetText(report.gpu.name, "Software GPU");
  control::SetText(report.gpu.version, "0.2.0");
  report.gpu.memory_bytes = 1 << 20;
  std::map<std::string, control::DomainState> domains;
  report.gpu.running_ns = static_cast<uint64_t>(running_s * 1e9);
  for (const control::AllocationState& state : allocations) {
    report.gpu.slots += state.slots;
    report.gpu.memory_used_bytes += state.memory_used_bytes;
    report.gpu.memory_promised_bytes += state.memory_quota_bytes;
    report.gpu.busy.compute_ns += state.time.compute_ns;
    report.gpu.busy.copy_to_device_ns += state.time.copy_to_device_ns;
    report.gpu.busy.copy_from_device_ns += state.time.copy_from_device_ns;
    control::DomainState& domain = domains[state.trust_domain];
    control::SetText(domain.name, state.trust_domain);
    domain.executors = domain.executors_started = 1;
    domain.overrun_wait_ns = 2'500'000'000;
    control::SetText(domain.executor_version, "0.1.9");
    ++domain.allocations;
    domain.sessions += state.sessions;
    domain.busy.compute_ns += state.time.compute_ns;
  }
  for (const auto& [name, domain] : domains) report.domains.push_back(domain);
  report.gpu.executors = static_cast<uint32_t>(domains.size());
  report.gpu.executors_started = 1;
  report.allocations = std::move(allocations);
  return report;
}

}  // namespace gpuloom
