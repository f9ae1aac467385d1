// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_figures.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "agent/node/lock_file.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/tenant_since.h"
#include "proto/control/client.h"

namespace gpuloom::run {
namespace {

// Whether an agent is in charge of the state folder that contains this GPU's folder. Also true where there has never
// been an agent: then the folder belongs to `gpuloom run`, whose orders are current.
bool HasAgentInCharge(const std::string& folder) {
  const std::string lock = std::filesystem::path(folder).parent_path().parent_path() / "agent.lock";
  std::error_code unknown;
  return !std::filesystem::exists(lock, unknown) || IsLocked(lock);
}

// Everything about one GPU: first the files in its folder, which are there without a scheduler,
// then the scheduler's own figures.
bool Ask(const std::string& folder, SchedulerFigures* figures, bool* nobody_there,
         std::string* error) {
  control::Client client;
  *nobody_there = false;
  figures->folder = folder;
  figures->standing = ReadStanding(folder);
  figures->standing_is_current = !figures->standing || HasAgentInCharge(folder);
  // The order counts before the agent has seen it, and where there is no agent.
  if (const std::string drained = DrainedBecause(folder); !drained.empty()) {
    if (!figures->standing) figures->standing.emplace();
    figures->standing->state = gpuloom::GpuState::kDrained;
    figures->standing->reason = drained;
    figures->standing_is_current = true;
  }
  if (!client.Connect(folder, control::Client::kDefaultTimeout, error)) {
    *nobody_there = client.nobody_there();
    return false;
  }
  figures->memory_bytes = client.device_memory_bytes();
  figures->driver_version = client.driver_version();
  figures->speaks_3_3 = client.scheduler_speaks_3_3();
  figures->speaks_3_4 = client.scheduler_speaks_3_4();
  if (!client.ListAllocations(&figures->allocations, error)) return false;
  // Slots whose pod is not known yet: nobody's.
  std::erase_if(figures->allocations,
                [](const control::AllocationState& state) { return state.bound == 0; });
  return !figures->speaks_3_3 || client.DescribeGpu(&figures->gpu, &figures->domains, error);
}

}  // namespace

std::string SchedulerFigures::name() const {
  // NAME_MAX: no folder's name is longer.
  constexpr size_t kLongestFolder = 255;
  return speaks_3_3 ? Text(gpu.uuid)
                    : OneLine(std::filesystem::path(folder).filename().string(), kLongestFolder);
}

std::vector<Tenant> TenantsOf(const std::vector<SchedulerFigures>& schedulers) {
  std::vector<Tenant> tenants;
  for (const SchedulerFigures& scheduler : schedulers) {
    for (const control::AllocationState& state : scheduler.allocations) {
      tenants.push_back({&scheduler, &state});
    }
  }
  std::ranges::sort(tenants, {}, [](const Tenant& tenant) {
    return std::tuple(Text(tenant.state->pod_namespace), Text(tenant.state->pod),
                      Text(tenant.state->container), tenant.scheduler->name());
  });
  return tenants;
}

int64_t SinceOf(const Tenant& tenant) {
  return SinceOf(tenant.scheduler->folder, Text(tenant.state->name));
}

ByWord ExecutorVersions(const SchedulerFigures& scheduler) {
  ByWord domains;
  for (const control::DomainState& domain : scheduler.domains) {
    const std::string version = Text(domain.executor_version);
    if (!version.empty()) domains[version].push_back(Text(domain.name));
  }
  return domains;
}

ByWord ExecutorCuptis(const SchedulerFigures& scheduler) {
  ByWord domains;
  for (const control::DomainState& domain : scheduler.domains) {
    const std::string cupti = Text(domain.executor_cupti);
    if (cupti.empty()) continue;
    domains[(domain.executor_has_cupti != 0 ? "" : "none; ") + cupti].push_back(Text(domain.name));
  }
  return domains;
}

std::string SomeOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

Json JsonOfBusyTime(const control::BusyTime& busy) {
  return {{"compute", Seconds(busy.compute_ns)},
          {"copy_to_device", Seconds(busy.copy_to_device_ns)},
          {"copy_from_device", Seconds(busy.copy_from_device_ns)}};
}

// The fields up to `unsupported` are known from every scheduler; those of later releases are left
// out of an older one's document rather than shown as zero.
Json JsonOfTenant(const Tenant& tenant) {
  const control::AllocationState& state = *tenant.state;
  Json json = {{"namespace", Text(state.pod_namespace)},
               {"pod", Text(state.pod)},
               {"pod_uid", Text(state.pod_uid)},
               {"container", Text(state.container)},
               {"gpu", tenant.scheduler->name()},
               {"trust_domain", Text(state.trust_domain)},
               {"state", StateOf(state)},
               {"since", JsonOfTime(SinceOf(tenant))},
               {"slots", state.slots},
               {"processes", state.sessions},
               {"memory_used_bytes", state.memory_used_bytes},
               {"memory_peak_bytes", state.memory_peak_bytes},
               {"memory_quota_bytes", state.memory_quota_bytes},
               {"memory_refusals", state.memory_refused_count},
               {"kernels", state.kernels_launched},
               {"unsupported_count", state.unsupported_count},
               {"unsupported", UnsupportedOf(state)}};
  if (!tenant.scheduler->speaks_3_3) return json;
  json["gpu_seconds"] = JsonOfBusyTime(
      {state.time.compute_ns, state.time.copy_to_device_ns, state.time.copy_from_device_ns});
  json["queue_seconds"] = Seconds(state.time.queue_ns);
  json["throttled_seconds"] = Seconds(state.time.throttled_ns);
  json["held_seconds"] = Seconds(state.time.held_ns);
  json["processes_begun"] = state.sessions_begun;
  json["processes_refused"] = state.sessions_refused;
  for (size_t i = 0; i < control::kFaults; ++i) json["faults"][kFaultNames[i]] = state.faults[i];
  if (tenant.scheduler->speaks_3_4) json["long_kernels"] = state.long_kernels;
  json["latest_fault"] = Text(state.latest_fault);
  json["latest_refusal"] = Text(state.latest_refusal);
  const control::WorkCounts& work = state.work;
  json["batches"] = work.batches;
  json["copies"] = {{"to_device", work.copies_to_device},
                    {"from_device", work.copies_from_device},
                    {"on_device", work.copies_on_device}};
  json["copied_bytes"] = {{"to_device", work.bytes_to_device},
                          {"from_device", work.bytes_from_device},
                          {"on_device", work.bytes_on_device}};
  return json;
}

std::vector<std::string> AllFigures::AllTroubles() const {
  std::vector<std::string> all = troubles;
  for (const std::string& folder : missing) all.push_back(NoSchedulerRuns(folder));
  return all;
}

AllFigures AskSchedulers(const std::string& state_dir) {
  AllFigures all;
  const std::vector<std::string> places = SearchedFolders(state_dir);
  std::string unseen;
  for (const std::string& folder : FindSchedulers(places, &unseen)) {
    SchedulerFigures figures;
    std::string error;
    bool nobody_there = false;
    // Four kinds: it answers; an agent's GPU is without one; a socket of `gpuloom run` that was
    // left behind, of which nothing need be said unless nothing else is found; one that does not
    // answer.
    if (Ask(folder, &figures, &nobody_there, &error)) {
      all.schedulers.push_back(std::move(figures));
    } else if (nobody_there && LacksScheduler(folder)) {
      all.missing.push_back(folder);
    } else if (nobody_there && !IsOfAgent(folder)) {
      unseen += "; " + error;
    } else {
      all.troubles.push_back(error);
    }
  }
  all.none_found = all.schedulers.empty() && all.troubles.empty() && all.missing.empty();
  if (all.none_found) all.troubles.push_back(NoSchedulerFound(places, unseen));
  return all;
}

// The first that is true, the most surprising first.
std::string StateOf(const control::AllocationState& state) {
  if (state.suspended != 0) return "suspended";
  if (state.memory_waiting != 0) return "waits for memory";
  return state.sessions == 0 ? "no process" : "runs";
}

std::vector<std::string> UnsupportedOf(const control::AllocationState& state) {
  constexpr size_t kLongestName = 300;
  std::vector<std::string> names;
  std::string_view rest(state.unsupported, control::TextLength(state.unsupported));
  // One name a line, as the scheduler tells them.
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    names.push_back(OneLine(rest.substr(0, end), kLongestName));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

}  // namespace gpuloom::run
