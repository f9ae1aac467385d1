// SPDX-License-Identifier: Apache-2.0
#include "agent/run/running_tenants.h"

#include <algorithm>
#include <tuple>

#include "agent/run/scheduler_figures.h"

namespace gpuloom::run {
namespace {

// False if no agent has said how many slots it has.
bool Describe(const SchedulerFigures& scheduler, RunningGpu* gpu) {
  if (!scheduler.standing || scheduler.standing->slots == 0) return false;
  const GpuStanding& standing = *scheduler.standing;
  Capacity& capacity = gpu->capacity;
  capacity.gpu = scheduler.name();
  capacity.total_bytes = scheduler.memory_bytes;
  // The agent says what slots may have; the rest is its reserve, whatever flag it came from.
  capacity.reserve_bytes =
      scheduler.memory_bytes - std::min(scheduler.memory_bytes, standing.available_bytes);
  capacity.slots = static_cast<int>(standing.slots);
  capacity.index = static_cast<int>(standing.index);
  if (scheduler.speaks_3_3) capacity.product = Text(scheduler.gpu.name);
  gpu->promised_bytes = standing.promised_bytes;
  return true;
}

}  // namespace

Running RunningTenants(const std::string& state_dir) {
  const AllFigures all = AskSchedulers(state_dir);
  Running running;
  if (!all.none_found) running.troubles = all.AllTroubles();
  for (const SchedulerFigures& scheduler : all.schedulers) {
    RunningGpu gpu;
    if (!Describe(scheduler, &gpu)) {
      running.troubles.push_back("no agent has said how many slots " + scheduler.name() +
                                 " has: what changes there is not known");
      continue;
    }
    // GPUs that cannot be judged are left out, so a tenant's number is not its scheduler's.
    const size_t number = running.gpus.size();
    // What they use is not known; that the scheduler does not know them has been said.
    for (const SlotRecord& record : all.unserved) {
      if (record.folder != scheduler.folder) continue;
      running.tenants.push_back({record.pod_namespace, record.pod, record.container, number,
                                 record.slots, 0, record.quota_bytes});
    }
    running.gpus.push_back(std::move(gpu));
    for (const control::AllocationState& state : scheduler.allocations) {
      running.tenants.push_back({Text(state.pod_namespace), Text(state.pod), Text(state.container),
                                 number, state.slots, state.memory_used_bytes,
                                 state.memory_quota_bytes});
    }
  }
  std::ranges::stable_sort(running.tenants, {}, [&](const RunningTenant& tenant) {
    return std::tie(tenant.pod_namespace, tenant.pod, tenant.container);
  });
  return running;
}

}  // namespace gpuloom::run
