// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/reports.h"

#include <algorithm>
#include <set>

#include "agent/node/gpu_uuid.h"
#include "agent/node/one_line.h"
#include "agent/scheduler/accounting.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/executors.h"
#include "agent/scheduler/memory_grants.h"
#include "agent/scheduler/peer.h"
#include "agent/scheduler/time_usage.h"
#include "agent/scheduler/trust_domains.h"
#include "agent/scheduler/turns.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {
namespace {

// Leaves room for an ellipsis mark and the terminating zero.
constexpr size_t kMaxTroubleBytes = sizeof(control::AllocationState::latest_fault) - 4;

}  // namespace

// At most kMaxAllocations messages, which Peer keeps for a slow reader.
void Reports::SendStates(Peer* peer, uint32_t request) {
  accounting_->ChargeAll();
  for (const auto& [name, entry] : registry_.allocations) {
    const Allocation& allocation = *entry.allocation;
    control::AllocationState state{};
    control::SetText(state.name, name.c_str());
    control::SetText(state.pod_namespace, allocation.identity.pod_namespace.c_str());
    control::SetText(state.pod, allocation.identity.pod.c_str());
    control::SetText(state.pod_uid, allocation.identity.pod_uid.c_str());
    control::SetText(state.container, allocation.identity.container.c_str());
    control::SetText(state.trust_domain, allocation.trust_domain.c_str());
    state.bound = allocation.bound ? 1 : 0;
    state.slots = allocation.slots;
    state.sessions = allocation.session_count;
    state.memory_quota_bytes = allocation.usage.quota_bytes();
    state.memory_used_bytes = allocation.usage.used_bytes();
    state.memory_peak_bytes = allocation.usage.peak_bytes();
    state.memory_refused_count = allocation.usage.refused_count();
    state.shares = allocation.shares;
    state.suspended = allocation.suspended ? 1 : 0;
    state.sessions_begun = allocation.sessions_begun;
    state.sessions_refused = allocation.sessions_refused;
    state.long_kernels = allocation.long_kernels;
    state.kernels = allocation.kernels;
    control::SetText(state.latest_fault,
                     OneLine(allocation.latest_fault, kMaxTroubleBytes).c_str());
    control::SetText(state.latest_refusal,
                     OneLine(allocation.latest_refusal, kMaxTroubleBytes).c_str());
    control::SetText(state.pending_partition,
                     OneLine(allocation.pending_partition, kMaxTroubleBytes).c_str());
    state.pending_partitions = allocation.pending_partitions;
    std::copy(allocation.faults.begin(), allocation.faults.end(), state.faults);
    AddSessions(allocation, &state);
    state.unsupported_count = static_cast<uint32_t>(allocation.unsupported.size());
    // As many whole names as fit.
    std::string unsupported;
    for (const std::string& one : allocation.unsupported) {
      if (unsupported.size() + one.size() + 1 >= sizeof(state.unsupported)) break;
      unsupported += one + "\n";
    }
    control::SetText(state.unsupported, unsupported.c_str());
    peer->Send(request, state);
  }
}

void Reports::SendGpu(Peer* peer, uint32_t request) {
  accounting_->ChargeAll();
  control::GpuState gpu{};
  control::SetText(gpu.uuid, FormatUuid(device_->facts().uuid).c_str());
  control::SetText(gpu.name, device_->facts().name.c_str());
  control::SetText(gpu.version, options_.version.c_str());
  gpu.memory_bytes = device_->facts().total_memory_bytes;
  gpu.running_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(EventLoop::Clock::now() - began_).count());
  gpu.busy = accounting_->busy();
  gpu.executors_started = executors_->counts().started;
  gpu.executors_failed = executors_->counts().failed;
  gpu.executors_lost = executors_->counts().lost;
  gpu.executors = static_cast<uint32_t>(registry_.executors.size());
  gpu.sessions = static_cast<uint32_t>(registry_.sessions.size());
  gpu.allocations = static_cast<uint32_t>(registry_.allocations.size());

  Domains domains;
  for (const auto& [name, entry] : registry_.allocations) {
    gpu.slots += entry.allocation->slots;
    if (!entry.allocation->bound) continue;
    AddTo(entry.allocation->usage.quota_bytes(), &gpu.memory_promised_bytes);
    ++domains[entry.allocation->trust_domain].allocations;
  }
  for (const auto& [id, session] : registry_.sessions) {
    ++domains[session->executor->domain].sessions;
  }
  for (const auto& [id, executor] : registry_.executors) {
    if (!executor->is_spare()) ++domains[executor->domain].executors;
  }
  AddMemory(&gpu);
  peer->Send(request, gpu);
  SendDomains(&domains, peer, request);
}

void Reports::AddMemory(control::GpuState* gpu) const {
  // Removed allocations have memory while their sessions end, and are charged for what an executor's driver still uses.
  std::set<const Allocation*> charged;
  for (const auto& [name, entry] : registry_.allocations) charged.insert(entry.allocation.get());
  for (const auto& [id, session] : registry_.sessions) charged.insert(session->allocation.get());
  for (const auto& [id, executor] : registry_.executors) {
    for (const auto& [memory_id, charge] : executor->charges) {
      charged.insert(charge.allocation.get());
    }
  }
  for (const Allocation* allocation : charged) {
    gpu->memory_used_bytes += allocation->usage.used_bytes();
  }
}

void Reports::SendDomains(Domains* domains, Peer* peer, uint32_t request) {
  for (auto& [name, domain] : *domains) {
    control::SetText(domain.name, name.c_str());
    if (const DomainHistory* const history = trust_domains_->book()->Find(name);
        history != nullptr) {
      domain.busy = history->busy;
      domain.executors_started = history->counts.started;
      domain.executors_failed = history->counts.failed;
      domain.executors_lost = history->counts.lost;
    }
    domain.overruns = turns_->overruns(name);
    domain.overrun_wait_ns = turns_->overrun_wait_ns(name);
    if (const auto serving = registry_.serving.find(name); serving != registry_.serving.end()) {
      control::SetText(domain.executor_version, serving->second->version.c_str());
      control::SetText(domain.executor_cupti, serving->second->cupti.c_str());
      domain.executor_has_cupti = serving->second->has_cupti ? 1 : 0;
      domain.executor_is_lenient = serving->second->lenient ? 1 : 0;
    }
    peer->Send(request, domain);
  }
}

void Reports::AddSessions(const Allocation& allocation, control::AllocationState* state) const {
  state->memory_waiting = static_cast<uint32_t>(memory_grants_->WaitingOf(allocation));
  state->kernels_launched = allocation.kernels_of_ended_sessions;
  state->time = allocation.time_of_ended_sessions;
  state->work = allocation.work_of_ended_sessions;
  for (const auto& [id, session] : registry_.sessions) {
    if (session->allocation.get() != &allocation) continue;
    AddTo(session->kernels_launched, &state->kernels_launched);
    AddTo(session->time, &state->time);
    AddTo(session->work, &state->work);
    // A session that its executor does not know of yet has nothing at the device.
    const bool is_held = session->held || session->state == Session::State::kWaiting;
    state->held_sessions += allocation.suspended && is_held;
  }
}

}  // namespace gpuloom::scheduler
