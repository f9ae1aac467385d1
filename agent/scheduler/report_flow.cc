// SPDX-License-Identifier: Apache-2.0
// What the scheduler counts, and what it tells of it: allocations, trust domains and the GPU. What executors report is
// untrusted: a figure never goes back, sums stop at the largest number, and nobody is charged for more of the device's
// time than has passed (device_time.h).
#include <algorithm>
#include <set>

#include "agent/node/gpu_uuid.h"
#include "agent/node/one_line.h"
#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/time_usage.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {
namespace {

// Leaves room for an ellipsis mark and the terminating zero.
constexpr size_t kMaxTroubleBytes = sizeof(control::AllocationState::latest_fault) - 4;

struct Engine {
  uint64_t control::TimeUsage::*used;
  uint64_t control::BusyTime::*busy;
};
constexpr Engine kEngines[] = {
    {&control::TimeUsage::compute_ns, &control::BusyTime::compute_ns},
    {&control::TimeUsage::copy_to_device_ns, &control::BusyTime::copy_to_device_ns},
    {&control::TimeUsage::copy_from_device_ns, &control::BusyTime::copy_from_device_ns}};
static_assert(std::size(kEngines) == DeviceTime::kEngines);

}  // namespace

void Scheduler::Raise(Session* session, uint64_t kernels_launched_untrusted,
                      const control::TimeUsage& time_untrusted,
                      const control::WorkCounts& work_untrusted) {
  session->kernels_launched = std::max(session->kernels_launched, kernels_launched_untrusted);
  RaiseTo(time_untrusted, &session->reported);
  RaiseTo(work_untrusted, &session->work);
  ChargeTime(session);
}

// What was reported and not charged yet is tried again each time: the executor's part grows.
// Waiting times are taken as they are, since they are nobody's device time.
void Scheduler::ChargeTime(Session* session) {
  control::TimeUsage& time = session->time;
  const control::TimeUsage before = time;
  time = session->reported;
  for (size_t i = 0; i < std::size(kEngines); ++i) {
    const uint64_t charged_ns = before.*kEngines[i].used;
    const uint64_t wanted_ns = session->reported.*kEngines[i].used - charged_ns;
    const uint64_t ns = wanted_ns == 0 ? 0 : turns_.Charge(*session->executor, i, wanted_ns);
    time.*kEngines[i].used = charged_ns + ns;
    if (ns == 0) continue;
    busy_.*kEngines[i].busy += ns;
    book_.Of(session->executor->domain).busy.*kEngines[i].busy += ns;
  }
}

void Scheduler::ChargeTimeOfAll() {
  for (const auto& [id, session] : sessions_) ChargeTime(session.get());
}

// One fault for each session: the first is the cause, the rest follows from it.
void Scheduler::NoteFault(Session* session, control::Fault fault, const std::string& what) {
  if (std::exchange(session->faulted, true)) return;
  Allocation& allocation = *session->allocation;
  ++allocation.faults[static_cast<size_t>(fault)];
  // The fault of one of the allocation's own processes is recorded already, and says more than the loss of the others.
  const bool is_said =
      fault == control::Fault::kLostExecutor && session->executor->blamed == &allocation;
  if (!is_said) allocation.latest_fault = what;
}

void Scheduler::ForgetDomains() {
  // A session's domain is its executor's, so that the executors suffice.
  std::set<std::string_view> present;
  for (const auto& [name, entry] : allocations_) {
    if (entry.allocation->bound) present.insert(entry.allocation->trust_domain);
  }
  for (const auto& [id, executor] : executors_) present.insert(executor->domain);
  const auto now = EventLoop::Clock::now();
  forget_timer_.Cancel();
  if (const auto next = book_.Forget(present, now)) {
    forget_timer_ = loop_->After(*next - now, [this] { ForgetDomains(); });
  }
}

// At most kMaxAllocations messages, which Peer keeps for a slow reader.
void Scheduler::SendStates(Peer* peer, uint32_t request) {
  ChargeTimeOfAll();
  for (const auto& [name, entry] : allocations_) {
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

void Scheduler::SendGpu(Peer* peer, uint32_t request) {
  ChargeTimeOfAll();
  control::GpuState gpu{};
  control::SetText(gpu.uuid, FormatUuid(device_->facts().uuid).c_str());
  control::SetText(gpu.name, device_->facts().name.c_str());
  control::SetText(gpu.version, options_.version.c_str());
  gpu.memory_bytes = device_->facts().total_memory_bytes;
  gpu.running_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(EventLoop::Clock::now() - began_).count());
  gpu.busy = busy_;
  gpu.executors_started = executor_counts_.started;
  gpu.executors_failed = executor_counts_.failed;
  gpu.executors_lost = executor_counts_.lost;
  gpu.executors = static_cast<uint32_t>(executors_.size());
  gpu.sessions = static_cast<uint32_t>(sessions_.size());
  gpu.allocations = static_cast<uint32_t>(allocations_.size());

  // Domains that have something at present. The book keeps the figures of others for when they come back.
  std::map<std::string, control::DomainState> domains;
  for (const auto& [name, entry] : allocations_) {
    gpu.slots += entry.allocation->slots;
    if (!entry.allocation->bound) continue;
    AddTo(entry.allocation->usage.quota_bytes(), &gpu.memory_promised_bytes);
    ++domains[entry.allocation->trust_domain].allocations;
  }
  for (const auto& [id, session] : sessions_) ++domains[session->executor->domain].sessions;
  for (const auto& [id, executor] : executors_) {
    if (!executor->is_spare()) ++domains[executor->domain].executors;
  }
  // Removed allocations have memory while their sessions end, and are charged for what an executor's driver still uses.
  std::set<const Allocation*> charged;
  for (const auto& [name, entry] : allocations_) charged.insert(entry.allocation.get());
  for (const auto& [id, session] : sessions_) charged.insert(session->allocation.get());
  for (const auto& [id, executor] : executors_) {
    for (const auto& [memory_id, charge] : executor->charges) {
      charged.insert(charge.allocation.get());
    }
  }
  for (const Allocation* allocation : charged) {
    gpu.memory_used_bytes += allocation->usage.used_bytes();
  }
  peer->Send(request, gpu);
  for (auto& [name, domain] : domains) {
    control::SetText(domain.name, name.c_str());
    if (const DomainHistory* const history = book_.Find(name); history != nullptr) {
      domain.busy = history->busy;
      domain.executors_started = history->counts.started;
      domain.executors_failed = history->counts.failed;
      domain.executors_lost = history->counts.lost;
    }
    domain.overruns = turns_.overruns(name);
    if (const auto serving = domains_.find(name); serving != domains_.end()) {
      control::SetText(domain.executor_version, serving->second->version.c_str());
      control::SetText(domain.executor_cupti, serving->second->cupti.c_str());
      domain.executor_has_cupti = serving->second->has_cupti ? 1 : 0;
    }
    peer->Send(request, domain);
  }
}

}  // namespace gpuloom::scheduler
