// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/state_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/control/version.h"

namespace gpuloom {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// Wall time, as Unix time in seconds, or null: it has not happened.
Json TimeOf(Clock::Time time, Clock::Duration wall_ahead) {
  if (time == Clock::Time()) return nullptr;
  return std::chrono::duration<double>((time + wall_ahead).time_since_epoch()).count();
}

template <typename Busy>  // TimeUsage or BusyTime
Json EnginesOf(const Busy& busy) {
  return {{"compute", Seconds(busy.compute_ns)},
          {"copy_to_device", Seconds(busy.copy_to_device_ns)},
          {"copy_from_device", Seconds(busy.copy_from_device_ns)}};
}

// In thousandths: the page shows no finer differences, and 300 tenants have 18,000 of these
// numbers.
Json SharesOf(const std::vector<double>& shares) {
  Json json = Json::array();
  for (const double share : shares) json.push_back(std::round(share * 1000) / 1000);
  return json;
}

Json FaultsOf(const TenantCounts& counts) {
  Json json = Json::object();
  for (size_t i = 0; i < control::kFaults; ++i) json[kFaultNames[i]] = counts.faults[i];
  return json;
}

Json BytesOf(const control::WorkCounts& work) {
  return {{"to_device", work.bytes_to_device},
          {"from_device", work.bytes_from_device},
          {"on_device", work.bytes_on_device}};
}

// The first that holds; what an operator did stands before what the tenant does.
const char* StateOf(const TenantGauges& now, bool is_known) {
  if (!is_known) return "unknown";
  if (now.slots == 0) return "ended";
  if (now.suspended) return "suspended";
  if (now.memory_waiting != 0) return "waits for memory";
  return now.sessions == 0 ? "no process" : "runs";
}

Json TenantOf(const TenantName& name, const Tenant& tenant, bool is_known,
              const ShareHistory& shares, Clock::Duration wall_ahead) {
  const TenantCounts& counts = tenant.counts;
  Json unsupported = tenant.unsupported;
  if (tenant.other_unsupported) unsupported.push_back("other");
  return {{"namespace", name.pod_namespace},
          {"pod", name.pod},
          {"container", name.container},
          {"gpu", name.gpu_uuid},
          {"trust_domain", tenant.trust_domain},
          {"state", StateOf(tenant.now, is_known)},
          {"last_seen", TimeOf(tenant.last_seen, wall_ahead)},
          {"slots", tenant.now.slots},
          {"processes", tenant.now.sessions},
          {"processes_begun", counts.sessions_begun},
          {"processes_refused", counts.session_refusals},
          {"memory_used_bytes", tenant.now.memory_used_bytes},
          {"memory_peak_bytes", tenant.memory_peak_bytes},
          {"memory_quota_bytes", tenant.now.memory_quota_bytes},
          {"memory_refusals", counts.memory_refusals},
          {"gpu_seconds", EnginesOf(counts.time)},
          {"queue_seconds", Seconds(counts.time.queue_ns)},
          {"throttled_seconds", Seconds(counts.time.throttled_ns)},
          {"kernels", counts.kernels},
          {"long_kernels", counts.long_kernels},
          {"batches", counts.work.batches},
          {"copied_bytes", BytesOf(counts.work)},
          {"faults", FaultsOf(counts)},
          {"unsupported", unsupported},
          {"shares", SharesOf(shares.Of(name))}};
}

Json GpuOf(const NodeFigures::OneGpu& one, const Ledger& ledger, const ShareHistory& shares,
           Clock::Duration wall_ahead) {
  // A GPU whose scheduler has never answered has zeros, and is not up.
  static const GpuUse kNone;
  const auto found = ledger.gpus.find(one.gpu.uuid);
  const GpuUse& gpu = found == ledger.gpus.end() ? kNone : found->second;
  int64_t since_unix_s = one.standing.since_unix_s;
  if (since_unix_s != 0) {
    since_unix_s += std::chrono::floor<std::chrono::seconds>(wall_ahead).count();
  }
  Json json = {{"gpu", one.gpu.uuid},
               {"index", one.gpu.index},
               {"name", one.gpu.name},
               {"healthy", one.standing.state == GpuState::kHealthy},
               {"state", kGpuStateNames[static_cast<size_t>(one.standing.state)]},
               {"state_reason", one.standing.reason},
               {"state_since", since_unix_s},
               {"slots", one.standing.slots},
               {"slots_allocated", one.standing.held},
               {"slots_beyond", one.standing.beyond},
               {"slots_withheld", one.standing.withheld},
               {"slot_memory_promised_bytes", one.standing.promised_bytes},
               {"slot_memory_bytes", one.standing.available_bytes},
               {"policy_rules_impossible", one.standing.impossible_rules},
               {"policy_impossible", one.standing.impossible},
               {"memory_bytes", one.gpu.total_bytes},
               {"scheduler_up", gpu.is_answering},
               {"scheduler_restarts", gpu.scheduler_restarts},
               {"reported", TimeOf(gpu.reported_at, wall_ahead)},
               {"busy_seconds", EnginesOf(gpu.counts.busy)},
               {"executors_started", gpu.counts.started},
               {"executors_failed", gpu.counts.failed},
               {"executors_lost", gpu.counts.lost},
               {"shares", SharesOf(shares.OfGpu(one.gpu.uuid))}};
  // What a scheduler of an older release does not say, or one that does not answer, is missing.
  if (gpu.is_answering && gpu.tells_gpu) {
    json["scheduler_version"] = gpu.version;
    json["memory_used_bytes"] = gpu.state.memory_used_bytes;
    json["memory_promised_bytes"] = gpu.state.memory_promised_bytes;
    json["processes"] = gpu.state.sessions;
    json["executors"] = gpu.state.executors;
  }
  return json;
}

Json NamespaceOf(const std::string& name, const NamespaceUse& use) {
  return {{"namespace", name},
          {"gpu_seconds", EnginesOf(use.counts.time)},
          {"memory_byte_seconds", use.memory_byte_seconds},
          {"quota_byte_seconds", use.quota_byte_seconds},
          {"slot_seconds", use.slot_seconds},
          {"kernels", use.counts.kernels},
          {"copied_bytes", BytesOf(use.counts.work)},
          {"memory_refusals", use.counts.memory_refusals},
          {"processes_refused", use.counts.session_refusals},
          {"faults", FaultsOf(use.counts)}};
}

}  // namespace

void RefusalTimes::Follow(const NodeFigures& node, Clock::Time now) {
  std::map<std::pair<std::string, std::string>, Seen> seen;
  for (const RefusedRequest& refusal : node.latest_refusals) {
    Seen& one = seen[{refusal.call, refusal.reason}];
    const auto before = seen_.find({refusal.call, refusal.reason});
    // Refusals have a count and no time: when the count has grown, it was just now. Those that are
    // no longer among the latest are forgotten here, too.
    const bool is_same = before != seen_.end() && before->second.times == refusal.times;
    one = is_same ? before->second : Seen{refusal.times, now};
  }
  seen_ = std::move(seen);
}

Clock::Time RefusalTimes::Of(const RefusedRequest& refusal) const {
  const auto found = seen_.find({refusal.call, refusal.reason});
  return found == seen_.end() ? Clock::Time() : found->second.last;
}

std::string FormatState(const Ledger& ledger, const NodeFigures& node, const PolicyHistory& policy,
                        const ShareHistory& shares, const RefusalTimes& refusals, Clock::Time now,
                        Clock::Duration wall_ahead) {
  Json json = {{"version", kVersion},
               {"time", TimeOf(now, wall_ahead)},
               {"step_seconds", std::chrono::duration<double>(ShareHistory::kStep).count()},
               {"node", {{"trouble", node.node_trouble}, {"unusable_gpu", node.has_unusable_gpu}}},
               {"policy",
                {{"in_force", node.has_policy},
                 {"generation", policy.generation},
                 {"changed", TimeOf(policy.changed_at, wall_ahead)},
                 {"error", policy.trouble},
                 {"failed_grants", node.failed_grants},
                 {"last_error", policy.last_error},
                 {"last_error_time", TimeOf(policy.error_at, wall_ahead)}}},
               {"kubelet",
                {{"watches", node.watches},
                 {"registrations", node.registrations},
                 {"errors", node.kubelet_errors},
                 {"refusals", node.refusals}}},
               {"gpus", Json::array()},
               {"tenants", Json::array()},
               {"namespaces", Json::array()},
               {"refusals", Json::array()}};
  for (const NodeFigures::OneGpu& gpu : node.gpus) {
    json["gpus"].push_back(GpuOf(gpu, ledger, shares, wall_ahead));
  }
  for (const auto& [name, tenant] : ledger.tenants) {
    const auto gpu = ledger.gpus.find(name.gpu_uuid);
    const bool is_known = gpu != ledger.gpus.end() && gpu->second.is_answering;
    json["tenants"].push_back(TenantOf(name, tenant, is_known, shares, wall_ahead));
  }
  for (const auto& [name, use] : ledger.namespaces) {
    json["namespaces"].push_back(NamespaceOf(name, use));
  }
  for (const RefusedRequest& refusal : node.latest_refusals) {
    json["refusals"].push_back({{"call", refusal.call},
                                {"reason", refusal.reason},
                                {"times", refusal.times},
                                {"last", TimeOf(refusals.Of(refusal), wall_ahead)}});
  }
  // Bytes that are not UTF-8 are replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuloom
