// SPDX-License-Identifier: Apache-2.0
#include "agent/run/status.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <vector>

#include "agent/node/one_line.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/table.h"
#include "proto/control/client.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

using Json = nlohmann::ordered_json;
using About = StatusCommand::About;

constexpr size_t kLongestName = 300;
// Shown in tables for what a scheduler of an older release does not report.
constexpr char kNotSaid[] = "-";

template <size_t N>
std::string Text(const char (&field)[N]) {
  return OneLine({field, control::TextLength(field)}, kLongestName);
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string Decimal(double number) {
  char text[64];
  snprintf(text, sizeof(text), "%.1f", number);
  return text;
}

// Rounded, as people read it.
std::string Memory(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? Decimal(mib) + "MiB" : Decimal(mib / 1024) + "GiB";
}

template <size_t N>
uint64_t Sum(const uint64_t (&numbers)[N]) {
  return std::accumulate(std::begin(numbers), std::end(numbers), uint64_t{0});
}

struct Scheduler {
  std::string folder;
  bool speaks_3_3 = false;  // `gpu` and `domains` are known
  bool speaks_3_4 = false;
  uint64_t memory_bytes = 0;
  control::GpuState gpu{};
  std::vector<control::DomainState> domains;
  std::vector<control::AllocationState> allocations;

  // The GPU's UUID, or for an older scheduler the folder's name, which the agent chose by GPU.
  std::string name() const {
    return speaks_3_3 ? Text(gpu.uuid)
                      : OneLine(std::filesystem::path(folder).filename().string(), kLongestName);
  }
};

bool Ask(const std::string& folder, Scheduler* scheduler, bool* nobody_there, std::string* error) {
  control::Client client;
  *nobody_there = false;
  scheduler->folder = folder;
  if (!client.Connect(folder, control::Client::kDefaultTimeout, error)) {
    *nobody_there = client.nobody_there();
    return false;
  }
  scheduler->memory_bytes = client.device_memory_bytes();
  scheduler->speaks_3_3 = client.scheduler_speaks_3_3();
  scheduler->speaks_3_4 = client.scheduler_speaks_3_4();
  if (!client.ListAllocations(&scheduler->allocations, error)) return false;
  std::erase_if(scheduler->allocations,
                [](const control::AllocationState& state) { return state.bound == 0; });
  return !scheduler->speaks_3_3 || client.DescribeGpu(&scheduler->gpu, &scheduler->domains, error);
}

struct Tenant {
  const Scheduler* scheduler;
  const control::AllocationState* state;

  auto Order() const {
    return std::tuple(Text(state->pod_namespace), Text(state->pod), Text(state->container),
                      scheduler->name());
  }
};

std::string StateOf(const control::AllocationState& state) {
  if (state.suspended != 0) return "suspended";
  if (state.memory_waiting != 0) return "waits for memory";
  return state.sessions == 0 ? "no process" : "runs";
}

std::vector<std::string> UnsupportedOf(const control::AllocationState& state) {
  std::vector<std::string> names;
  std::string_view rest(state.unsupported, control::TextLength(state.unsupported));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    names.push_back(OneLine(rest.substr(0, end), kLongestName));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

Json JsonOf(const control::BusyTime& busy) {
  return {{"compute", Seconds(busy.compute_ns)},
          {"copy_to_device", Seconds(busy.copy_to_device_ns)},
          {"copy_from_device", Seconds(busy.copy_from_device_ns)}};
}

Json JsonOf(const Tenant& tenant) {
  const control::AllocationState& state = *tenant.state;
  Json json = {{"namespace", Text(state.pod_namespace)},
               {"pod", Text(state.pod)},
               {"pod_uid", Text(state.pod_uid)},
               {"container", Text(state.container)},
               {"gpu", tenant.scheduler->name()},
               {"trust_domain", Text(state.trust_domain)},
               {"state", StateOf(state)},
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
  json["gpu_seconds"] =
      JsonOf({state.time.compute_ns, state.time.copy_to_device_ns, state.time.copy_from_device_ns});
  json["queue_seconds"] = Seconds(state.time.queue_ns);
  json["throttled_seconds"] = Seconds(state.time.throttled_ns);
  json["held_seconds"] = Seconds(state.time.held_ns);
  json["processes_begun"] = state.sessions_begun;
  json["processes_refused"] = state.sessions_refused;
  const auto fault = [&state](control::Fault kind) {
    return state.faults[static_cast<size_t>(kind)];
  };
  json["faults"] = {{"broke_protocol", fault(control::Fault::kBrokeProtocol)},
                    {"lost_device", fault(control::Fault::kLostDevice)},
                    {"did_not_drain", fault(control::Fault::kDidNotDrain)},
                    {"lost_executor", fault(control::Fault::kLostExecutor)},
                    {"long_kernel", fault(control::Fault::kLongKernel)}};
  if (tenant.scheduler->speaks_3_4) json["long_kernels"] = state.long_kernels;
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

std::vector<std::string> RowOf(const Tenant& tenant) {
  const control::AllocationState& state = *tenant.state;
  const bool said = tenant.scheduler->speaks_3_3;
  return {Text(state.pod_namespace),
          Text(state.pod),
          Text(state.container),
          tenant.scheduler->name(),
          std::to_string(state.slots),
          Memory(state.memory_used_bytes) + "/" + Memory(state.memory_quota_bytes),
          said ? Decimal(Seconds(state.time.compute_ns)) + "s" : kNotSaid,
          std::to_string(state.kernels_launched),
          std::to_string(state.sessions),
          said ? std::to_string(state.memory_refused_count + state.sessions_refused) : kNotSaid,
          said ? std::to_string(Sum(state.faults)) : kNotSaid,
          StateOf(state)};
}

Json JsonOf(const Scheduler& scheduler) {
  Json json = {{"gpu", scheduler.name()},
               {"state_dir", OneLine(scheduler.folder, kLongestName)},
               {"memory_bytes", scheduler.memory_bytes}};
  if (!scheduler.speaks_3_3) return json;
  const control::GpuState& gpu = scheduler.gpu;
  json["name"] = Text(gpu.name);
  json["version"] = Text(gpu.version);
  json["memory_used_bytes"] = gpu.memory_used_bytes;
  json["memory_promised_bytes"] = gpu.memory_promised_bytes;
  json["slots_used"] = gpu.slots;
  json["tenants"] = scheduler.allocations.size();
  json["processes"] = gpu.sessions;
  json["running_seconds"] = Seconds(gpu.running_ns);
  json["busy_seconds"] = JsonOf(gpu.busy);
  json["executors"] = {{"now", gpu.executors},
                       {"started", gpu.executors_started},
                       {"failed", gpu.executors_failed},
                       {"lost", gpu.executors_lost}};
  json["trust_domains"] = Json::array();
  for (const control::DomainState& domain : scheduler.domains) {
    json["trust_domains"].push_back({{"name", Text(domain.name)},
                                     {"tenants", domain.allocations},
                                     {"processes", domain.sessions},
                                     {"busy_seconds", JsonOf(domain.busy)},
                                     {"executors",
                                      {{"now", domain.executors},
                                       {"started", domain.executors_started},
                                       {"failed", domain.executors_failed},
                                       {"lost", domain.executors_lost}}}});
  }
  return json;
}

std::vector<std::string> RowOf(const Scheduler& scheduler) {
  const control::GpuState& gpu = scheduler.gpu;
  const std::string tenants = std::to_string(scheduler.allocations.size());
  if (!scheduler.speaks_3_3) {
    return {scheduler.name(), kNotSaid, kNotSaid, kNotSaid, Memory(scheduler.memory_bytes),
            kNotSaid,         kNotSaid, tenants,  kNotSaid, kNotSaid};
  }
  const double busy = gpu.running_ns == 0 ? 0
                                          : 100 * static_cast<double>(gpu.busy.compute_ns) /
                                                static_cast<double>(gpu.running_ns);
  return {scheduler.name(),
          Text(gpu.name),
          Memory(gpu.memory_used_bytes),
          Memory(gpu.memory_promised_bytes),
          Memory(gpu.memory_bytes),
          Decimal(busy) + "%",
          Decimal(Seconds(gpu.running_ns)) + "s",
          tenants,
          std::to_string(gpu.sessions),
          std::to_string(gpu.executors_failed + gpu.executors_lost)};
}

std::string FormatJson(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string FormatTenants(const std::vector<Scheduler>& schedulers, bool as_json) {
  std::vector<Tenant> tenants;
  for (const Scheduler& scheduler : schedulers) {
    for (const auto& state : scheduler.allocations) tenants.push_back({&scheduler, &state});
  }
  std::ranges::sort(tenants, {}, &Tenant::Order);
  if (as_json) {
    Json json = {{"tenants", Json::array()}};
    for (const Tenant& tenant : tenants) json["tenants"].push_back(JsonOf(tenant));
    return FormatJson(json);
  }
  std::vector<std::vector<std::string>> rows = {{"NAMESPACE", "POD", "CONTAINER", "GPU", "SLOTS",
                                                 "MEMORY", "GPU-TIME", "KERNELS", "PROCESSES",
                                                 "REFUSED", "FAULTS", "STATE"}};
  for (const Tenant& tenant : tenants) rows.push_back(RowOf(tenant));
  return FormatTable(rows);
}

std::string FormatGpus(const std::vector<Scheduler>& schedulers, bool as_json) {
  if (as_json) {
    Json json = {{"gpus", Json::array()}};
    for (const Scheduler& scheduler : schedulers) json["gpus"].push_back(JsonOf(scheduler));
    return FormatJson(json);
  }
  std::vector<std::vector<std::string>> rows = {{"GPU", "NAME", "USED", "PROMISED", "MEMORY",
                                                 "BUSY", "SINCE", "TENANTS", "PROCESSES",
                                                 "EXECUTORS-LOST"}};
  for (const Scheduler& scheduler : schedulers) rows.push_back(RowOf(scheduler));
  return FormatTable(rows);
}

std::string FormatVersions(const std::vector<Scheduler>& schedulers, bool as_json) {
  if (as_json) {
    Json json = {{"version", kVersion}, {"schedulers", Json::array()}};
    for (const Scheduler& scheduler : schedulers) {
      Json one = {{"gpu", scheduler.name()}};
      if (scheduler.speaks_3_3) one["version"] = Text(scheduler.gpu.version);
      json["schedulers"].push_back(one);
    }
    return FormatJson(json);
  }
  std::string text = VersionLine("gpuloom") + "\n";
  for (const Scheduler& scheduler : schedulers) {
    text += "scheduler of " + scheduler.name() + ": " +
            (scheduler.speaks_3_3 ? Text(scheduler.gpu.version)
                                  : std::string("an older release, before control 3.3")) +
            "\n";
  }
  return text;
}

}  // namespace

StatusAnswer AnswerAboutStatus(const StatusCommand& command) {
  StatusAnswer answer;
  const auto fail = [&answer](const std::string& trouble) {
    answer.exit_status = 1;
    answer.trouble += "gpuloom: " + trouble + "\n";
  };
  const std::vector<std::string> places = SearchedFolders(command.state_dir);
  std::string unseen;
  std::vector<Scheduler> schedulers;
  for (const std::string& folder : FindSchedulers(places, &unseen)) {
    Scheduler scheduler;
    std::string error;
    bool nobody_there = false;
    if (Ask(folder, &scheduler, &nobody_there, &error)) {
      schedulers.push_back(std::move(scheduler));
    } else if (nobody_there) {
      unseen += "; " + error;  // a socket that a scheduler has left behind
    } else {
      fail(error);
    }
  }
  // This program's own version is known without any.
  if (schedulers.empty() && answer.exit_status == 0 && command.about != About::kVersions) {
    fail(NoSchedulerFound(places, unseen));
  }
  switch (command.about) {
    case About::kTenants:
      answer.text = FormatTenants(schedulers, command.json);
      break;
    case About::kGpus:
      answer.text = FormatGpus(schedulers, command.json);
      break;
    case About::kVersions:
      answer.text = FormatVersions(schedulers, command.json);
      break;
  }
  return answer;
}

}  // namespace gpuloom::run
