// SPDX-License-Identifier: Apache-2.0
#include "agent/run/refusals.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "agent/answer/table.h"
#include "agent/node/refusal_file.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/shown_time.h"
#include "agent/run/tenant_since.h"

namespace gpuloom::run {
namespace {

// Letters of a table's cell; a document has all names.
constexpr size_t kLongestNames = 400;

uint64_t FaultsOf(const control::AllocationState& state) {
  return std::accumulate(std::begin(state.faults), std::end(state.faults), uint64_t{0});
}

// Anything that was refused or went wrong since its slots were given.
bool HasTrouble(const Tenant& tenant) {
  const control::AllocationState& state = *tenant.state;
  return state.memory_refused_count != 0 || state.sessions_refused != 0 || FaultsOf(state) != 0 ||
         state.unsupported_count != 0 || state.pending_partition[0] != 0;
}

// "cuA, cuB and 3 more".
std::string UnsupportedNames(const control::AllocationState& state) {
  const std::vector<std::string> names = UnsupportedOf(state);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  text = CutToLetters(text, kLongestNames);
  if (names.size() < state.unsupported_count) {
    text += " and " + std::to_string(state.unsupported_count - names.size()) + " more";
  }
  return text;
}

// "lost_device", or of several kinds "1 lost_device, 2 long_kernel".
// One kind needs no number: the row has it.
std::string FaultNames(const control::AllocationState& state) {
  std::string text, only;
  for (size_t i = 0; i < control::kFaults; ++i) {
    if (state.faults[i] == 0) continue;
    only = text.empty() ? kFaultNames[i] : "";
    text += (text.empty() ? "" : ", ") + std::to_string(state.faults[i]) + " " + kFaultNames[i];
  }
  return only.empty() ? text : only;
}

// The table: what the agents have refused first, then what schedulers have.
class Rows {
 public:
  void Add(const KnownRefusal& refusal) {
    rows_.push_back({TimeText(refusal.last_unix_s), std::to_string(refusal.times), refusal.call,
                     kNotSaid, refusal.reason});
  }

  // A row for each kind of trouble that there was. The scheduler counts without keeping times, so
  // these have no LAST.
  void Add(const control::AllocationState& state) {
    const auto kinds =
        std::ranges::count_if(state.faults, [](uint64_t count) { return count != 0; });
    // The scheduler tells why of the latest alone.
    std::string why = Text(state.latest_fault);
    if (!why.empty()) why = (kinds == 1 ? ": " : "; latest: ") + why;
    const std::string refusal = Text(state.latest_refusal);
    Add(state, "memory", state.memory_refused_count,
        "beyond its quota of " + RoundedSize(state.memory_quota_bytes) + "; it uses " +
            RoundedSize(state.memory_used_bytes));
    Add(state, "process", state.sessions_refused,
        "not let in" + (refusal.empty() ? "" : ": " + refusal));
    Add(state, "fault", FaultsOf(state), FaultNames(state) + why);
    if (state.pending_partition[0] != 0) {
      Add(state, "partition", state.pending_partitions,
          "pending: " + Text(state.pending_partition));
    }
    Add(state, "call", state.unsupported_count, "not supported: " + UnsupportedNames(state));
  }

  std::string Table() const { return FormatTable(rows_); }

 private:
  void Add(const control::AllocationState& state, const char* what, uint64_t times,
           std::string why) {
    if (times == 0) return;
    rows_.push_back(
        {kNotSaid, std::to_string(times), what,
         Text(state.pod_namespace) + "/" + Text(state.pod) + "/" + Text(state.container),
         std::move(why)});
  }

  std::vector<std::vector<std::string>> rows_ = {{"LAST", "TIMES", "WHAT", "POD", "REASON"}};
};

}  // namespace

std::string FormatAllRefusals(const std::string& state_dir,
                              const std::vector<SchedulerFigures>& schedulers, Format format) {
  std::vector<KnownRefusal> refusals;
  for (const std::string& place : SearchedFolders(state_dir)) {
    const ShownTime shown(place);
    std::string unread;
    std::optional<std::vector<KnownRefusal>> kept = ReadRefusals(place, &unread);
    if (!kept.has_value()) {
      fprintf(stderr, "gpuloom: %s\n", unread.c_str());
      continue;
    }
    for (KnownRefusal& refusal : *kept) {
      refusal.last_unix_s = shown.Of(refusal.last_unix_s);
      refusals.push_back(std::move(refusal));
    }
  }
  std::vector<Tenant> tenants = TenantsOf(schedulers);
  std::erase_if(tenants, std::not_fn(HasTrouble));
  if (format == Format::kTable) {
    Rows rows;
    for (const KnownRefusal& refusal : refusals) rows.Add(refusal);
    for (const Tenant& tenant : tenants) rows.Add(*tenant.state);
    return rows.Table();
  }
  Json json = {{"refusals", Json::array()}, {"tenants", Json::array()}};
  for (const KnownRefusal& refusal : refusals) {
    json["refusals"].push_back({{"last", JsonOfTime(refusal.last_unix_s)},
                                {"times", refusal.times},
                                {"call", refusal.call},
                                {"reason", refusal.reason}});
  }
  for (const Tenant& tenant : tenants) json["tenants"].push_back(JsonOfTenant(tenant));
  return FormatDocument(json, format);
}

}  // namespace gpuloom::run
