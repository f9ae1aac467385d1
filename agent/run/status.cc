// SPDX-License-Identifier: Apache-2.0
// Tables and documents from what AskSchedulers has gathered. Documents have everything, tables what
// fits. Fields that a scheduler of an older release does not know are "-" in a table and left out
// of a document.
#include "agent/run/status.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "agent/answer/table.h"
#include "agent/node/one_line.h"
#include "agent/node/process.h"
#include "agent/run/executor_program.h"
#include "agent/run/refusals.h"
#include "agent/run/scheduler_figures.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/shown_time.h"
#include "agent/run/tenant_since.h"
#include "agent/run/versions.h"

namespace gpuloom::run {
namespace {

using About = StatusCommand::About;

// The sum over all kinds, of faults for example.
template <size_t N>
uint64_t Sum(const uint64_t (&numbers)[N]) {
  return std::accumulate(std::begin(numbers), std::end(numbers), uint64_t{0});
}

// The cells under FormatTenants' headings, as below under FormatGpus'.
std::vector<std::string> RowOf(const Tenant& tenant) {
  const control::AllocationState& state = *tenant.state;
  const bool said = tenant.scheduler->speaks_3_3;
  const int64_t since = SinceOf(tenant);
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
          since == 0 ? kNotSaid : TimeText(since),
          StateOf(state)};
}

// For a container that holds slots but has no allocation in a scheduler: all that is known is the
// agent's record.
std::vector<std::string> RowOf(const SlotRecord& record) {
  return {record.pod_namespace,
          record.pod,
          record.container,
          record.gpu,
          std::to_string(record.slots),
          kNotSaid + std::string("/") + RoundedSize(record.quota_bytes),
          kNotSaid,
          kNotSaid,
          kNotSaid,
          kNotSaid,
          kNotSaid,
          record.since_unix_s == 0 ? kNotSaid : TimeText(record.since_unix_s),
          kNotServed};
}

// Null: it was not said.
template <size_t N>
Json TextOrNull(const char (&field)[N]) {
  const std::string text = Text(field);
  return text.empty() ? Json() : Json(text);
}

// Null: no executor is ready, or its scheduler is an older one.
Json FullyConfined(const control::DomainState& domain) {
  if (Text(domain.executor_version).empty()) return {};
  return domain.executor_is_lenient == 0;
}

const char* StateNameOf(const GpuStanding& standing) {
  return kGpuStateNames[static_cast<size_t>(standing.state)];
}

// "10/5": held of those that there are.
std::string SlotsOf(const SchedulerFigures& scheduler) {
  if (!scheduler.standing || scheduler.standing->slots == 0) return kNotSaid;
  return std::to_string(scheduler.standing->held) + "/" + std::to_string(scheduler.standing->slots);
}

// The last cell: the agent's verdict in words, with all that keeps slots from being had.
std::string StandingOf(const SchedulerFigures& scheduler) {
  constexpr char kSilent[] = "its scheduler does not answer";
  if (!scheduler.standing) return scheduler.answers ? kNotSaid : kSilent;
  const GpuStanding& standing = *scheduler.standing;
  std::string text = StateNameOf(standing);
  // It begins with "drained" itself.
  if (standing.state == gpuloom::GpuState::kDrained) text = standing.reason;
  if (!scheduler.standing_is_current) text = "no agent is in charge; the last one said: " + text;
  if (standing.state == gpuloom::GpuState::kSick ||
      standing.state == gpuloom::GpuState::kUnavailable) {
    text += ": " + standing.reason;
  }
  if (standing.withheld != 0) {
    text += ", " + std::to_string(standing.withheld) + " slots withheld: no memory is left";
  }
  if (standing.impossible_rules != 0) {
    text += ", rules of the policy that are impossible here: " +
            std::to_string(standing.impossible_rules);
  }
  // The agent says so itself after some seconds.
  if (!scheduler.answers && standing.state != gpuloom::GpuState::kUnavailable) {
    text += std::string(", ") + kSilent;
  }
  return text;
}

// As wall time. The folder is <state>/gpus/<GPU>.
int64_t StateSince(const std::filesystem::path& folder, const GpuStanding& standing) {
  return ShownTime(folder.parent_path().parent_path()).Of(standing.since_unix_s);
}

// The agent's report comes first, because it is known whatever the scheduler's version.
Json JsonOf(const SchedulerFigures& scheduler) {
  Json json = {{"gpu", scheduler.name()},
               {"state_dir", OneLine(scheduler.folder, kLongestNameBytes)},
               {"answers", scheduler.answers},
               {"memory_bytes", scheduler.answers ? Json(scheduler.memory_bytes) : Json()}};
  if (scheduler.standing) {
    const GpuStanding& standing = *scheduler.standing;
    json["state"] = StateNameOf(standing);
    json["state_reason"] = standing.reason;
    json["state_since"] = StateSince(scheduler.folder, standing);
    json["state_is_current"] = scheduler.standing_is_current;
    json["slots"] = {{"all", standing.slots},
                     {"held", standing.held},
                     {"beyond", standing.beyond},
                     {"withheld", standing.withheld},
                     {"memory_promised_bytes", standing.promised_bytes},
                     {"memory_bytes", standing.available_bytes}};
    json["policy_rules_impossible"] = standing.impossible_rules;
    json["policy_impossible"] = standing.impossible;
  }
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
  json["busy_seconds"] = JsonOfBusyTime(gpu.busy);
  json["executors"] = {{"now", gpu.executors},
                       {"started", gpu.executors_started},
                       {"failed", gpu.executors_failed},
                       {"lost", gpu.executors_lost}};
  json["trust_domains"] = Json::array();
  for (const control::DomainState& domain : scheduler.domains) {
    Json its = {{"name", Text(domain.name)},
                {"tenants", domain.allocations},
                {"processes", domain.sessions},
                {"busy_seconds", JsonOfBusyTime(domain.busy)},
                {"overruns", domain.overruns},
                {"executors",
                 {{"version", TextOrNull(domain.executor_version)},
                  {"fully_confined", FullyConfined(domain)},
                  {"now", domain.executors},
                  {"started", domain.executors_started},
                  {"failed", domain.executors_failed},
                  {"lost", domain.executors_lost}}}};
    if (scheduler.speaks_3_8) its["overrun_wait_seconds"] = Seconds(domain.overrun_wait_ns);
    json["trust_domains"].push_back(std::move(its));
  }
  return json;
}

std::vector<std::string> RowOf(const SchedulerFigures& scheduler) {
  const control::GpuState& gpu = scheduler.gpu;
  const std::string tenants =
      scheduler.answers ? std::to_string(scheduler.allocations.size()) : kNotSaid;
  if (!scheduler.speaks_3_3) {
    return {scheduler.name(),
            kNotSaid,
            kNotSaid,
            kNotSaid,
            scheduler.answers ? RoundedSize(scheduler.memory_bytes) : kNotSaid,
            kNotSaid,
            kNotSaid,
            SlotsOf(scheduler),
            tenants,
            kNotSaid,
            kNotSaid,
            StandingOf(scheduler)};
  }
  // The share of the whole time since the scheduler began; `gpuloom top` shows that of an interval.
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
          SlotsOf(scheduler),
          tenants,
          std::to_string(gpu.sessions),
          std::to_string(gpu.executors_failed + gpu.executors_lost),
          StandingOf(scheduler)};
}

std::string FormatTenants(const AllFigures& all, Format format) {
  const std::vector<Tenant> tenants = TenantsOf(all.schedulers);
  if (format != Format::kTable) {
    Json json = {{"tenants", Json::array()}};
    for (const Tenant& tenant : tenants) json["tenants"].push_back(JsonOfTenant(tenant));
    for (const SlotRecord& record : all.unserved) json["tenants"].push_back(JsonOfRecord(record));
    return FormatDocument(json, format);
  }
  std::vector<std::vector<std::string>> rows = {{"NAMESPACE", "POD", "CONTAINER", "GPU", "SLOTS",
                                                 "MEMORY", "GPU-TIME", "KERNELS", "PROCESSES",
                                                 "REFUSED", "FAULTS", "SINCE", "STATE"}};
  for (const Tenant& tenant : tenants) rows.push_back(RowOf(tenant));
  for (const SlotRecord& record : all.unserved) rows.push_back(RowOf(record));
  return FormatTable(rows);
}

std::string FormatGpus(const AllFigures& all, Format format) {
  std::vector<SchedulerFigures> schedulers = all.schedulers;
  schedulers.insert(schedulers.end(), all.silent.begin(), all.silent.end());
  std::ranges::sort(schedulers, {}, &SchedulerFigures::folder);
  if (format != Format::kTable) {
    Json json = {{"gpus", Json::array()}};
    for (const SchedulerFigures& scheduler : schedulers) json["gpus"].push_back(JsonOf(scheduler));
    return FormatDocument(json, format);
  }
  std::vector<std::vector<std::string>> rows = {{"GPU", "NAME", "USED", "PROMISED", "MEMORY",
                                                 "BUSY", "SINCE", "SLOTS", "TENANTS", "PROCESSES",
                                                 "EXECUTORS-LOST", "STATE"}};
  for (const SchedulerFigures& scheduler : schedulers) rows.push_back(RowOf(scheduler));
  return FormatTable(rows);
}

}  // namespace

Answer AnswerAboutStatus(const StatusCommand& command) {
  Answer answer;
  // The answers of some schedulers are shown even if others have not answered.
  const AllFigures all = AskSchedulers(command.state_dir);
  if (all.has_no_gpu) answer.trouble = std::string("gpuloom: ") + kNoGpu + "\n";
  // This program's own version is known without any.
  if (!all.none_found || command.about != About::kVersions) {
    for (const std::string& trouble : all.AllTroubles()) {
      answer.exit_status = kNotGood;
      answer.trouble += "gpuloom: " + trouble + "\n";
    }
  }
  switch (command.about) {
    case About::kTenants:
      answer.text = FormatTenants(all, command.format);
      break;
    case About::kGpus:
      answer.text = FormatGpus(all, command.format);
      break;
    case About::kRefusals:
      answer.text = FormatAllRefusals(command.state_dir, all.schedulers, command.format);
      break;
    case About::kVersions:
      answer.text = FormatVersions(command.state_dir, all.schedulers,
                                   AskExecutorProgram(OwnProgram()), command.format);
      break;
  }
  return answer;
}

}  // namespace gpuloom::run
