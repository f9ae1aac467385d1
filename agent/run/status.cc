// SPDX-License-Identifier: Apache-2.0
#include "agent/run/status.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "agent/answer/table.h"
#include "agent/run/scheduler_figures.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

using About = StatusCommand::About;

constexpr size_t kLongestName = 300;

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

template <size_t N>
uint64_t Sum(const uint64_t (&numbers)[N]) {
  return std::accumulate(std::begin(numbers), std::end(numbers), uint64_t{0});
}

struct Tenant {
  const SchedulerFigures* scheduler;
  const control::AllocationState* state;

  auto Order() const {
    return std::tuple(Text(state->pod_namespace), Text(state->pod), Text(state->container),
                      scheduler->name());
  }
};

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
          RoundedSize(state.memory_used_bytes) + "/" + RoundedSize(state.memory_quota_bytes),
          said ? Decimal(Seconds(state.time.compute_ns)) + "s" : kNotSaid,
          std::to_string(state.kernels_launched),
          std::to_string(state.sessions),
          said ? std::to_string(state.memory_refused_count + state.sessions_refused) : kNotSaid,
          said ? std::to_string(Sum(state.faults)) : kNotSaid,
          StateOf(state)};
}

Json JsonOf(const SchedulerFigures& scheduler) {
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

std::vector<std::string> RowOf(const SchedulerFigures& scheduler) {
  const control::GpuState& gpu = scheduler.gpu;
  const std::string tenants = std::to_string(scheduler.allocations.size());
  if (!scheduler.speaks_3_3) {
    return {scheduler.name(), kNotSaid, kNotSaid, kNotSaid, RoundedSize(scheduler.memory_bytes),
            kNotSaid,         kNotSaid, tenants,  kNotSaid, kNotSaid};
  }
  const double busy = gpu.running_ns == 0 ? 0
                                          : 100 * static_cast<double>(gpu.busy.compute_ns) /
                                                static_cast<double>(gpu.running_ns);
  return {scheduler.name(),
          Text(gpu.name),
          RoundedSize(gpu.memory_used_bytes),
          RoundedSize(gpu.memory_promised_bytes),
          RoundedSize(gpu.memory_bytes),
          Decimal(busy) + "%",
          Decimal(Seconds(gpu.running_ns)) + "s",
          tenants,
          std::to_string(gpu.sessions),
          std::to_string(gpu.executors_failed + gpu.executors_lost)};
}

std::string FormatTenants(const std::vector<SchedulerFigures>& schedulers, Format format) {
  std::vector<Tenant> tenants;
  for (const SchedulerFigures& scheduler : schedulers) {
    for (const auto& state : scheduler.allocations) tenants.push_back({&scheduler, &state});
  }
  std::ranges::sort(tenants, {}, &Tenant::Order);
  if (format != Format::kTable) {
    Json json = {{"tenants", Json::array()}};
    for (const Tenant& tenant : tenants) json["tenants"].push_back(JsonOf(tenant));
    return FormatDocument(json, format);
  }
  std::vector<std::vector<std::string>> rows = {{"NAMESPACE", "POD", "CONTAINER", "GPU", "SLOTS",
                                                 "MEMORY", "GPU-TIME", "KERNELS", "PROCESSES",
                                                 "REFUSED", "FAULTS", "STATE"}};
  for (const Tenant& tenant : tenants) rows.push_back(RowOf(tenant));
  return FormatTable(rows);
}

std::string FormatGpus(const std::vector<SchedulerFigures>& schedulers, Format format) {
  if (format != Format::kTable) {
    Json json = {{"gpus", Json::array()}};
    for (const SchedulerFigures& scheduler : schedulers) json["gpus"].push_back(JsonOf(scheduler));
    return FormatDocument(json, format);
  }
  std::vector<std::vector<std::string>> rows = {{"GPU", "NAME", "USED", "PROMISED", "MEMORY",
                                                 "BUSY", "SINCE", "TENANTS", "PROCESSES",
                                                 "EXECUTORS-LOST"}};
  for (const SchedulerFigures& scheduler : schedulers) rows.push_back(RowOf(scheduler));
  return FormatTable(rows);
}

std::string FormatVersions(const std::vector<SchedulerFigures>& schedulers, Format format) {
  if (format != Format::kTable) {
    Json json = {{"version", kVersion}, {"schedulers", Json::array()}};
    for (const SchedulerFigures& scheduler : schedulers) {
      Json one = {{"gpu", scheduler.name()}};
      if (scheduler.speaks_3_3) one["version"] = Text(scheduler.gpu.version);
      json["schedulers"].push_back(one);
    }
    return FormatDocument(json, format);
  }
  std::string text = VersionLine("gpuloom") + "\n";
  for (const SchedulerFigures& scheduler : schedulers) {
    text += "scheduler of " + scheduler.name() + ": " +
            (scheduler.speaks_3_3 ? Text(scheduler.gpu.version)
                                  : std::string("an older release, before control 3.3")) +
            "\n";
  }
  return text;
}

}  // namespace

Answer AnswerAboutStatus(const StatusCommand& command) {
  Answer answer;
  const AllFigures all = AskSchedulers(command.state_dir);
  // This program's own version is known without any.
  if (!all.none_found || command.about != About::kVersions) {
    for (const std::string& trouble : all.troubles) {
      answer.exit_status = kNotGood;
      answer.trouble += "gpuloom: " + trouble + "\n";
    }
  }
  switch (command.about) {
    case About::kTenants:
      answer.text = FormatTenants(all.schedulers, command.format);
      break;
    case About::kGpus:
      answer.text = FormatGpus(all.schedulers, command.format);
      break;
    case About::kVersions:
      answer.text = FormatVersions(all.schedulers, command.format);
      break;
  }
  return answer;
}

}  // namespace gpuloom::run
