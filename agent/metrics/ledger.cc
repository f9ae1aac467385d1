// SPDX-License-Identifier: Apache-2.0
// What is counted is structs of 64-bit words and nothing else, so that one loop adds, compares or
// subtracts all of their figures, and a new figure needs no code here.
#include "agent/metrics/ledger.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "agent/node/one_line.h"
#include "proto/control/connection.h"
#include "proto/cuda/driver_api.h"

namespace gpuloom {
namespace {

// Above the longest name that Kubernetes has (253).
constexpr size_t kLongestName = 300;
// How far the clocks of agent and scheduler may be apart, and an answer be late.
constexpr Clock::Duration kClockSlack = std::chrono::seconds(2);

template <typename T>
using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;

// Stops at the largest number: a sum that began again at 0 would be charged anew.
void AddTo(uint64_t figure, uint64_t* sum) {
  *sum = figure > std::numeric_limits<uint64_t>::max() - *sum ? std::numeric_limits<uint64_t>::max()
                                                              : *sum + figure;
}

template <typename T>
void AddTo(const T& figures, T* sum) {
  const auto words = std::bit_cast<Words<T>>(figures);
  auto sums = std::bit_cast<Words<T>>(*sum);
  for (size_t i = 0; i < words.size(); ++i) AddTo(words[i], &sums[i]);
  *sum = std::bit_cast<T>(sums);
}

// What is new since `before`: all of it when it has begun again, which a figure that went back shows.
template <typename T>
T NewOf(const T& now, const T& before) {
  auto words = std::bit_cast<Words<T>>(now);
  const auto earlier = std::bit_cast<Words<T>>(before);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] < earlier[i]) return now;
  }
  for (size_t i = 0; i < words.size(); ++i) words[i] -= earlier[i];
  return std::bit_cast<T>(words);
}

// As labels and JSON take it. Escaped, not dropped, so that two names stay two.
template <size_t N>
std::string Text(const char (&field)[N]) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const char c : OneLine({field, control::TextLength(field)}, kLongestName)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text;
}

TenantCounts CountsOf(const control::AllocationState& state) {
  TenantCounts counts{};
  counts.kernels = state.kernels_launched;
  counts.long_kernels = state.long_kernels;
  counts.memory_refusals = state.memory_refused_count;
  counts.session_refusals = state.sessions_refused;
  counts.sessions_begun = state.sessions_begun;
  std::copy(std::begin(state.faults), std::end(state.faults), counts.faults);
  counts.time = state.time;
  counts.work = state.work;
  return counts;
}

template <typename State>
ExecutorCounts ExecutorCountsOf(const State& state) {
  return {state.executors_started, state.executors_failed, state.executors_lost, state.busy};
}

// Adds to what is known: a scheduler's list is of one allocation, and of one run.
void SetUnsupported(const control::AllocationState& state, Tenant* tenant) {
  std::string_view rest(state.unsupported, control::TextLength(state.unsupported));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    SymbolId id;
    if (FindSymbol(rest.substr(0, end), &id)) {
      tenant->unsupported.emplace(SymbolOf(id).name);
    } else {
      tenant->other_unsupported = true;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

// Forgets entries for which `may_go` is true, least recently seen first, until at most `most` are left.
template <typename Map, typename MayGo>
void ForgetBeyond(size_t most, Map* map, MayGo may_go) {
  std::vector<typename Map::iterator> gone;
  for (auto it = map->begin(); it != map->end(); ++it) {
    if (may_go(it)) gone.push_back(it);
  }
  if (gone.size() <= most) return;
  std::ranges::sort(gone, {}, [](const auto& it) { return it->second.last_seen; });
  for (size_t i = 0; i < gone.size() - most; ++i) map->erase(gone[i]);
}

}  // namespace

// First the past: what was held since the last report is charged by what that said. Then the new
// figures, as differences to those of the last report, or whole, if another scheduler has counted
// them.
void Ledger::Add(const std::string& gpu_uuid, const GpuReport& report, bool is_new_connection,
                 Clock::Time now) {
  GpuUse& gpu = gpus[gpu_uuid];
  // False for a ledger that was loaded: its figures continue from what the previous agent has seen.
  const bool is_first = gpu.reported_at == Clock::Time();
  // A ledger of before a reboot that lost the date is of the future: no sum goes back for that.
  const Clock::Duration since =
      is_first ? Clock::Duration{}
               : std::max(Clock::Duration{},
                          std::chrono::duration_cast<Clock::Duration>(now - gpu.reported_at));
  // A scheduler that has run for less than it must have by now is another one. The figures alone would show it, too, unless
  // the new ones have overtaken the old.
  const auto ran = [](const control::GpuState& state) {
    return std::chrono::duration_cast<Clock::Duration>(std::chrono::nanoseconds(state.running_ns));
  };
  const bool has_restarted =
      !is_first && report.tells_gpu && gpu.tells_gpu &&
      (report.gpu.running_ns < gpu.state.running_ns ||
       // Only a new connection can be another scheduler's.
       (is_new_connection && ran(report.gpu) + kClockSlack < ran(gpu.state) + since));
  // Nobody knows until when the tenants of the one that ended held anything: it is not charged.
  if (has_restarted) {
    ++gpu.scheduler_restarts;
  } else {
    ChargeWhatWasHeld(gpu_uuid, std::min(since, kLongestCharge));
  }

  AddAllocations(gpu_uuid, &gpu, report, has_restarted, now);
  const ExecutorCounts before = has_restarted ? ExecutorCounts{} : ExecutorCountsOf(gpu.state);
  AddTo(NewOf(ExecutorCountsOf(report.gpu), before), &gpu.counts);
  AddDomains(&gpu, report, has_restarted, now);
  gpu.is_answering = true;
  gpu.tells_gpu = report.tells_gpu;
  gpu.state = report.gpu;
  gpu.name = Text(report.gpu.name);
  gpu.version = Text(report.gpu.version);
  gpu.reported_at = now;
}

void Ledger::ChargeWhatWasHeld(const std::string& gpu_uuid, Clock::Duration held) {
  const double seconds = std::chrono::duration<double>(held).count();
  for (const auto& [name, tenant] : tenants) {
    // A tenant that was not in the last report held nothing: its figures are 0.
    if (name.gpu_uuid != gpu_uuid) continue;
    NamespaceUse& use = namespaces[name.pod_namespace];
    use.memory_byte_seconds += static_cast<double>(tenant.now.memory_used_bytes) * seconds;
    use.quota_byte_seconds += static_cast<double>(tenant.now.memory_quota_bytes) * seconds;
    use.slot_seconds += static_cast<double>(tenant.now.slots) * seconds;
  }
}

void Ledger::AddAllocations(const std::string& gpu_uuid, GpuUse* gpu, const GpuReport& report,
                            bool has_restarted, Clock::Time now) {
  for (auto& [name, tenant] : tenants) {
    // A tenant that is not in this report holds nothing; the others are added up anew below.
    if (name.gpu_uuid == gpu_uuid) tenant.now = {};
  }
  std::map<std::string, GpuUse::Reported> allocations;
  for (const control::AllocationState& state : report.allocations) {
    if (state.bound == 0) continue;
    const TenantName name = {Text(state.pod_namespace), Text(state.pod), Text(state.container),
                             gpu_uuid};
    const TenantCounts counts = CountsOf(state);
    const auto known = gpu->allocations.find(Text(state.name));
    // An allocation that was known, under the same names. Otherwise all of its figures are new to
    // the tenant, whatever was counted under that name before.
    const bool goes_on =
        !has_restarted && known != gpu->allocations.end() && known->second.tenant == name;
    const TenantCounts added = goes_on ? NewOf(counts, known->second.counts) : counts;
    allocations[Text(state.name)] = {name, counts};

    // Several allocations may be one tenant: an init container's and its successor's, or those of
    // pods that follow one another. Each has only the slots that it still holds.
    Tenant& tenant = tenants[name];
    AddTo(added, &tenant.counts);
    tenant.now.slots += state.slots;
    tenant.now.sessions += state.sessions;
    tenant.now.memory_quota_bytes += state.memory_quota_bytes;
    tenant.now.memory_used_bytes += state.memory_used_bytes;
    tenant.now.memory_waiting += state.memory_waiting;
    tenant.now.unsupported_count += state.unsupported_count;
    tenant.now.suspended = tenant.now.suspended || state.suspended != 0;
    tenant.now.partition_pending = tenant.now.partition_pending || state.pending_partition[0] != 0;
    // The largest peak of a single allocation: peaks at different times cannot be added.
    tenant.memory_peak_bytes = std::max(tenant.memory_peak_bytes, state.memory_peak_bytes);
    tenant.trust_domain = Text(state.trust_domain);
    SetUnsupported(state, &tenant);
    tenant.last_seen = now;

    NamespaceUse& use = namespaces[name.pod_namespace];
    AddTo(added, &use.counts);
    use.last_seen = now;
  }
  gpu->allocations = std::move(allocations);
}

void Ledger::AddDomains(GpuUse* gpu, const GpuReport& report, bool has_restarted, Clock::Time now) {
  for (auto& [name, domain] : gpu->domains) {
    // Gauges only. Domains that are not in this report keep their sums until they are forgotten.
    domain.executors = domain.sessions = domain.allocations = domain.overrun_wait_ns = 0;
    domain.slots = domain.memory_promised_bytes = domain.memory_used_bytes = 0;
    domain.executor_version.clear();
    if (has_restarted) domain.reported = {};
  }
  for (const control::DomainState& state : report.domains) {
    DomainUse& domain = gpu->domains[Text(state.name)];
    AddTo(NewOf(ExecutorCountsOf(state), domain.reported), &domain.counts);
    domain.reported = ExecutorCountsOf(state);
    domain.executors = state.executors;
    domain.executor_version = Text(state.executor_version);
    domain.sessions = state.sessions;
    domain.allocations = state.allocations;
    domain.overrun_wait_ns = state.overrun_wait_ns;
    domain.last_seen = now;
  }
  for (const control::AllocationState& state : report.allocations) {
    if (state.bound == 0) continue;
    const auto domain = gpu->domains.find(Text(state.trust_domain));
    // A scheduler before control 3.3 names none, and one that is new meanwhile is in the next report.
    if (domain == gpu->domains.end()) continue;
    AddTo(state.slots, &domain->second.slots);
    AddTo(state.memory_quota_bytes, &domain->second.memory_promised_bytes);
    AddTo(state.memory_used_bytes, &domain->second.memory_used_bytes);
  }
}

// What is counted of each since `begun`, which is the same with the first reports only, is new to this ledger.
void Ledger::Continue(const std::map<std::string, ReportAt>& first, const Ledger& meanwhile) {
  Ledger begun;
  for (const auto& [uuid, one] : first) {
    begun.Add(uuid, one.report, true, one.at);
    Add(uuid, one.report, true, one.at);
  }
  for (const auto& [name, tenant] : meanwhile.tenants) {
    Tenant& mine = tenants[name];
    const Tenant before = std::exchange(mine, tenant);
    mine.counts = before.counts;
    AddTo(NewOf(tenant.counts, begun.tenants[name].counts), &mine.counts);
    mine.memory_peak_bytes = std::max(mine.memory_peak_bytes, before.memory_peak_bytes);
    mine.unsupported.insert(before.unsupported.begin(), before.unsupported.end());
    mine.other_unsupported = mine.other_unsupported || before.other_unsupported;
  }
  // What they held until the first report is charged by Add.
  for (const auto& [name, use] : meanwhile.namespaces) {
    NamespaceUse& mine = namespaces[name];
    AddTo(NewOf(use.counts, begun.namespaces[name].counts), &mine.counts);
    mine.memory_byte_seconds += use.memory_byte_seconds;
    mine.quota_byte_seconds += use.quota_byte_seconds;
    mine.slot_seconds += use.slot_seconds;
    mine.last_seen = use.last_seen;
  }
  for (const auto& [uuid, gpu] : meanwhile.gpus) {
    GpuUse& mine = gpus[uuid];
    GpuUse& at_first = begun.gpus[uuid];
    const GpuUse before = std::exchange(mine, gpu);
    mine.counts = before.counts;
    AddTo(NewOf(gpu.counts, at_first.counts), &mine.counts);
    mine.scheduler_restarts += before.scheduler_restarts;
    mine.domains = before.domains;
    for (const auto& [name, domain] : gpu.domains) {
      DomainUse& its = mine.domains[name];
      const ExecutorCounts counted = std::exchange(its, domain).counts;
      its.counts = counted;
      AddTo(NewOf(domain.counts, at_first.domains[name].counts), &its.counts);
    }
  }
}

void Ledger::SetSilent(const std::string& gpu_uuid) {
  const auto gpu = gpus.find(gpu_uuid);
  if (gpu != gpus.end()) gpu->second.is_answering = false;
}

void Ledger::Forget(Clock::Time now) {
  // Tenants and domains that were not reported for kLinger, also because their scheduler is silent.
  const auto is_over = [now](const auto& entry) { return now - entry.second.last_seen > kLinger; };
  std::erase_if(tenants, is_over);
  for (auto& [uuid, gpu] : gpus) std::erase_if(gpu.domains, is_over);
  ForgetBeyond(kMaxLingering, &tenants, [](auto it) { return it->second.now.slots == 0; });
  // A namespace is kept while a tenant of it is known, beyond any bound; of the others so many.
  std::set<std::string> present;
  for (const auto& [name, tenant] : tenants) present.insert(name.pod_namespace);
  ForgetBeyond(kMaxNamespaces, &namespaces,
               [&present](auto it) { return !present.contains(it->first); });
}

}  // namespace gpuloom
