// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_figures.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <tuple>

#include "agent/node/agent_lock.h"
#include "agent/node/one_line.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/tenant_since.h"
#include "proto/control/client.h"

namespace gpuloom::run {
namespace {

bool Ask(const std::string& folder, SchedulerFigures* figures, bool* not_listening,
         std::string* error) {
  control::Client client;
  *not_listening = false;
  figures->folder = folder;
  figures->standing = ReadStanding(folder);
  figures->standing_is_current = !figures->standing || !LacksAgent(StateFolderOf(folder));
  if (const std::string drained = DrainReason(folder); !drained.empty()) {
    if (!figures->standing) figures->standing.emplace();
    figures->standing->state = gpuloom::GpuState::kDrained;
    figures->standing->reason = drained;
    figures->standing_is_current = true;
  }
  if (!client.Connect(folder, control::Client::kDefaultTimeout, error)) {
    *not_listening = client.not_listening();
    return false;
  }
  figures->memory_bytes = client.device_memory_bytes();
  figures->driver_version = client.driver_version();
  figures->speaks_3_3 = client.scheduler_speaks_3_3();
  figures->speaks_3_4 = client.scheduler_speaks_3_4();
  figures->speaks_3_8 = client.scheduler_speaks_3_8();
  if (!client.ListAllocations(&figures->allocations, error)) return false;
  // Slots whose pod is not known yet: nobody's.
  std::erase_if(figures->allocations,
                [](const control::AllocationState& state) { return state.bound == 0; });
  return !figures->speaks_3_3 || client.DescribeGpu(&figures->gpu, &figures->domains, error);
}

// What is known without its scheduler.
SchedulerFigures Silent(const SchedulerFigures& asked) {
  SchedulerFigures silent;
  silent.folder = asked.folder;
  silent.standing = asked.standing;
  silent.standing_is_current = asked.standing_is_current;
  silent.answers = false;
  return silent;
}

bool Serves(const SchedulerFigures& scheduler, const SlotRecord& record) {
  return scheduler.folder == record.folder &&
         std::ranges::any_of(scheduler.allocations, [&](const control::AllocationState& state) {
           return Text(state.name) == record.allocation;
         });
}

// Containers that hold slots by the agent's records and have no allocation in the scheduler: it has just been started,
// or there is no agent to send it the allocations. Until it has them, their programs cannot start, and its figures lack
// them.
std::string NotServed(const SchedulerFigures& scheduler,
                      const std::vector<std::string>& containers) {
  return "the scheduler of " + scheduler.name() +
         " does not know who holds slots there: " + SomeOf(containers) + "; " +
         (LacksAgent(StateFolderOf(scheduler.folder))
              ? "no agent is in charge, and only the agent tells it: start the node's "
                "gpuloom-agent "
                "pod"
              : "the agent tells it within seconds after its start; if not, the agent's log says "
                "why");
}

// `folders`: all GPUs'.
void ReadRecords(const std::vector<std::string>& folders, AllFigures* all) {
  std::set<std::string> states;
  for (const std::string& folder : folders) {
    if (IsOfAgent(folder)) states.insert(StateFolderOf(folder));
  }
  for (const std::string& state : states) {
    SlotRecords its = ReadSlotRecords(state);
    std::ranges::move(its.troubles, std::back_inserter(all->record_troubles));
    // Those of other GPUs are not asked for, where `folders` is one GPU's alone.
    std::ranges::copy_if(
        its.records, std::back_inserter(all->records),
        [&](const SlotRecord& record) { return std::ranges::count(folders, record.folder) != 0; });
  }
}

// A record that is not bound is of a pod that has not started: its scheduler need not know it yet.
void FindUnserved(AllFigures* all) {
  for (const SlotRecord& record : all->records) {
    if (!record.is_bound) continue;
    const bool is_served = std::ranges::any_of(
        all->schedulers, [&](const SchedulerFigures& one) { return Serves(one, record); });
    // Its pod may have ended since the records were read.
    if (!is_served && ReadSlotRecord(StateFolderOf(record.folder), record.allocation)) {
      all->unserved.push_back(record);
    }
  }
  for (const SchedulerFigures& scheduler : all->schedulers) {
    std::vector<std::string> containers;
    for (const SlotRecord& record : all->unserved) {
      if (record.folder != scheduler.folder) continue;
      containers.push_back(record.pod_namespace + "/" + record.pod + "/" + record.container);
    }
    if (!containers.empty()) all->unserved_troubles.push_back(NotServed(scheduler, containers));
  }
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

std::vector<std::string> LenientDomains(const SchedulerFigures& scheduler) {
  std::vector<std::string> names;
  for (const control::DomainState& domain : scheduler.domains) {
    if (domain.executor_is_lenient != 0) names.push_back(Text(domain.name));
  }
  return names;
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
  if (tenant.scheduler->speaks_3_8) json["pending_partition"] = Text(state.pending_partition);
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

Json JsonOfRecord(const SlotRecord& record) {
  return {{"namespace", record.pod_namespace},
          {"pod", record.pod},
          {"container", record.container},
          {"gpu", record.gpu},
          {"trust_domain", record.trust_domain},
          {"state", kNotServed},
          {"since", JsonOfTime(record.since_unix_s)},
          {"slots", record.slots},
          {"memory_quota_bytes", record.quota_bytes}};
}

std::string StateFolderOf(const std::string& folder) {
  return std::filesystem::path(folder).parent_path().parent_path();
}

std::vector<std::string> AllFigures::AllTroubles() const {
  std::vector<std::string> all = troubles;
  for (const std::string& folder : missing) all.push_back(NoSchedulerRuns(folder));
  all.insert(all.end(), record_troubles.begin(), record_troubles.end());
  all.insert(all.end(), unserved_troubles.begin(), unserved_troubles.end());
  return all;
}

AllFigures AskSchedulers(const std::string& state_dir) {
  AllFigures all;
  const std::vector<std::string> places = SearchedFolders(state_dir);
  std::string unseen;
  const std::vector<std::string> folders = FindSchedulers(places, &unseen);
  // Read before the schedulers are queried, so that a scheduler that is up to date knows every
  // allocation in the records.
  ReadRecords(folders, &all);
  for (const std::string& folder : folders) {
    SchedulerFigures figures;
    std::string error;
    bool not_listening = false;
    // Four kinds: it answers; an agent's GPU is without one; a socket of `gpuloom run` that was
    // left behind, of which nothing need be said unless nothing else is found; one that does not
    // answer.
    if (Ask(folder, &figures, &not_listening, &error)) {
      all.schedulers.push_back(std::move(figures));
    } else if (not_listening && LacksScheduler(folder)) {
      all.missing.push_back(folder);
      all.silent.push_back(Silent(figures));
    } else if (not_listening && !IsOfAgent(folder)) {
      unseen += "; " + error;
    } else {
      all.troubles.push_back(error);
      all.silent.push_back(Silent(figures));
    }
  }
  FindUnserved(&all);
  all.none_found = all.schedulers.empty() && all.silent.empty();
  all.has_no_gpu = all.none_found && unseen.empty() && HasNoGpu(places);
  if (all.none_found && !all.has_no_gpu) all.troubles.push_back(NoSchedulerFound(places, unseen));
  return all;
}

// The first that is true, the most surprising first.
std::string StateOf(const control::AllocationState& state) {
  if (state.suspended != 0) return "suspended";
  if (state.memory_waiting != 0) return "waits for memory";
  return state.sessions == 0 ? "no process" : "runs";
}

std::vector<std::string> UnsupportedOf(const control::AllocationState& state) {
  std::vector<std::string> names;
  std::string_view rest(state.unsupported, control::TextLength(state.unsupported));
  // One name a line, as the scheduler tells them.
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    names.push_back(OneLine(rest.substr(0, end), kLongestNameBytes));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

}  // namespace gpuloom::run
