// SPDX-License-Identifier: Apache-2.0
#include "agent/events/tenant_watch.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "agent/cat.h"
#include "agent/node/size.h"
#include "proto/control/connection.h"

namespace gpuloom {
namespace {

// By control::Fault.
constexpr struct {
  const char* reason;
  const char* what;
} kFaults[] = {
    {"GpuProcessFaulty", "broke the protocol: its memory was overwritten, or it is hostile"},
    {"GpuFault", "lost the device: an illegal access or the like in one of its kernels"},
    {"GpuDidNotDrain", "ended, and its work on the GPU did not end in time"},
    {"GpuExecutorLost", "lost its executor, mostly by a fault of a neighbour in its trust domain"},
    {"GpuKernelTooLong", "had a kernel that ran for longer than maxKernelTime lets it"},
};
static_assert(std::size(kFaults) == control::kFaults, "each fault has its event");

std::string Count(uint64_t number, const char* one, const char* many) {
  return Cat(number, " ", number == 1 ? one : many);
}

bool WentBack(const TenantWatch::Counts& before, const TenantWatch::Counts& now) {
  return now.memory_refusals < before.memory_refusals ||
         now.session_refusals < before.session_refusals || now.long_kernels < before.long_kernels ||
         now.pending_partitions < before.pending_partitions ||
         !std::equal(std::begin(before.faults), std::end(before.faults), std::begin(now.faults),
                     std::less_equal<>());
}

}  // namespace

void TenantWatch::Resume(std::map<std::string, Counts> known) {
  known_ = std::move(known);
  has_looked_ = true;
}

std::vector<Event> TenantWatch::Look(const GpuReport& report) {
  std::vector<Event> events;
  std::map<std::string, Counts> seen;
  for (const control::AllocationState& state : report.allocations) {
    // Nobody's yet: there is no pod to tell.
    if (state.bound == 0) continue;
    const std::string name = control::TextOf(state.name);
    Counts now = {state.memory_refused_count,
                  state.sessions_refused,
                  state.long_kernels,
                  state.pending_partitions,
                  {}};
    std::copy(std::begin(state.faults), std::end(state.faults), std::begin(now.faults));
    const auto known = known_.find(name);
    // One that was there before this agent looked first.
    const bool is_news = known != known_.end() || has_looked_;
    // A new scheduler counts from 0.
    const bool is_anew = known == known_.end() || WentBack(known->second, now);
    const Counts before = is_anew ? Counts{} : known->second;
    seen[name] = now;
    if (!is_news) continue;
    // One for each counter that has grown, of the same pod.
    Event event;
    event.pod_namespace = control::TextOf(state.pod_namespace);
    event.pod = control::TextOf(state.pod);
    event.container = control::TextOf(state.container);
    event.instance = name;
    const auto add = [&](const char* reason, const std::string& message,
                         const std::string& why = {}) {
      event.reason = reason;
      event.message = Cat(message, " on GPU ", control::TextOf(report.gpu.uuid));
      if (!why.empty()) event.message += Cat(": ", why);
      events.push_back(event);
    };
    if (now.memory_refusals > before.memory_refusals) {
      add("GpuMemoryRefused",
          Cat(Count(now.memory_refusals - before.memory_refusals, "request", "requests"),
              " for GPU memory refused, beyond its quota of ", FormatSize(state.memory_quota_bytes),
              " or what the GPU has left; it uses ", FormatSize(state.memory_used_bytes)));
    }
    if (now.session_refusals > before.session_refusals) {
      add("GpuProcessRefused",
          Cat(Count(now.session_refusals - before.session_refusals, "process", "processes"),
              " not let in"),
          state.latest_refusal[0] != 0 ? control::TextOf(state.latest_refusal)
                                       : control::TextOf(state.latest_fault));
    }
    // latest_fault is of the latest one only, and stands for all that came since the last look.
    for (size_t i = 0; i < control::kFaults; ++i) {
      if (now.faults[i] <= before.faults[i]) continue;
      add(kFaults[i].reason,
          Cat(Count(now.faults[i] - before.faults[i], "process", "processes"), " ",
              kFaults[i].what),
          control::TextOf(state.latest_fault));
    }
    constexpr auto kLong = static_cast<size_t>(control::Fault::kLongKernel);
    // A kernel that was ended for it has its own event above.
    if (now.long_kernels > before.long_kernels && now.faults[kLong] == before.faults[kLong]) {
      add("GpuKernelLong", Cat(Count(now.long_kernels - before.long_kernels, "kernel", "kernels"),
                               " ran for longer than maxKernelTime warns of"));
    }
    if (now.pending_partitions > before.pending_partitions) {
      add("GpuPartitionPending", "does not have the multiprocessors that the policy says",
          state.pending_partition[0] != 0 ? control::TextOf(state.pending_partition)
                                          : "has them meanwhile");
    }
  }
  known_ = std::move(seen);
  has_looked_ = true;
  return events;
}

}  // namespace gpuloom
