// SPDX-License-Identifier: Apache-2.0
// One function for each kind of thing that has metrics. A metric's name and help stand where its
// value is set, once; docs/metrics.md has the same table. Two rules hold for all of them: a gauge
// of what a scheduler says is so now is left out while it does not answer, because its last value
// may be wrong by now; a counter stays, because the sum is right as far as it goes, and a series
// that ends and begins again tears a hole into every rate.
#include "agent/metrics/exposition.h"

#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>

#include "proto/control/version.h"

namespace gpuloom {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::ClientMetric;
using prometheus::MetricType;

// Prometheus has base units and doubles: seconds, bytes, and whole numbers that are exact to 2^53.
double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double Number(uint64_t number) { return static_cast<double>(number); }
double UnixSeconds(Clock::Time time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// By value: the caller's labels are used for several metrics.
Labels And(Labels labels, const char* name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

// Metrics by family, in the order in which families were first named.
class Families {
 public:
  void Gauge(const char* name, const char* help, Labels labels, double value) {
    Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  void Counter(const char* name, const char* help, Labels labels, double value) {
    Add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }
  // Schedulers count each bucket by itself; Prometheus wants each to include those below it, and
  // the last one to be all.
  void Histogram(const char* name, const char* help, Labels labels,
                 const control::Histogram& counts) {
    ClientMetric::Histogram& histogram =
        Add(name, help, MetricType::Histogram, std::move(labels)).histogram;
    for (size_t i = 0; i < control::kHistogramCounts; ++i) {
      histogram.sample_count += counts.counts[i];
      histogram.bucket.push_back(
          {histogram.sample_count, i + 1 < control::kHistogramCounts
                                       ? Seconds(control::kHistogramBoundsNs[i])
                                       : std::numeric_limits<double>::infinity()});
    }
    histogram.sample_sum = Seconds(counts.sum_ns);
  }

  // The same for each engine of a GPU.
  template <typename Busy>  // TimeUsage or BusyTime
  void Engines(const char* name, const char* help, const Labels& labels, const Busy& busy) {
    Counter(name, help, And(labels, "engine", "compute"), Seconds(busy.compute_ns));
    Counter(name, help, And(labels, "engine", "copy_to_device"), Seconds(busy.copy_to_device_ns));
    Counter(name, help, And(labels, "engine", "copy_from_device"),
            Seconds(busy.copy_from_device_ns));
  }
  void Copies(const char* name, const char* help, const Labels& labels,
              const control::WorkCounts& work) {
    Counter(name, help, And(labels, "direction", "to_device"), Number(work.copies_to_device));
    Counter(name, help, And(labels, "direction", "from_device"), Number(work.copies_from_device));
    Counter(name, help, And(labels, "direction", "on_device"), Number(work.copies_on_device));
  }
  void Bytes(const char* name, const char* help, const Labels& labels,
             const control::WorkCounts& work) {
    Counter(name, help, And(labels, "direction", "to_device"), Number(work.bytes_to_device));
    Counter(name, help, And(labels, "direction", "from_device"), Number(work.bytes_from_device));
    Counter(name, help, And(labels, "direction", "on_device"), Number(work.bytes_on_device));
  }
  void Refusals(const char* name, const char* help, const Labels& labels,
                const TenantCounts& counts) {
    Counter(name, help, And(labels, "kind", "memory"), Number(counts.memory_refusals));
    Counter(name, help, And(labels, "kind", "session"), Number(counts.session_refusals));
  }
  void Faults(const char* name, const char* help, const Labels& labels,
              const TenantCounts& counts) {
    for (size_t i = 0; i < control::kFaults; ++i) {
      Counter(name, help, And(labels, "kind", kFaultNames[i]), Number(counts.faults[i]));
    }
  }

  const std::vector<prometheus::MetricFamily>& all() const { return families_; }

 private:
  // The format wants all metrics of a family together, whatever they are added in between. By
  // index, not by pointer: families_ grows. The result holds until the next call.
  ClientMetric& Add(const char* name, const char* help, MetricType type, Labels labels) {
    const auto [place, is_new] = places_.emplace(name, families_.size());
    if (is_new) families_.push_back({name, help, type, {}});
    ClientMetric& metric = families_[place->second].metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
  // In families_, by name.
  std::map<std::string, size_t, std::less<>> places_;
};

void AddTenant(const TenantName& name, const Tenant& tenant, bool is_known, Families* out) {
  const Labels labels = {{"namespace", name.pod_namespace},
                         {"pod", name.pod},
                         {"container", name.container},
                         {"gpu", name.gpu_uuid}};
  // What a tenant holds is not known while its scheduler does not answer.
  if (is_known) {
    const TenantGauges& now = tenant.now;
    out->Gauge("gpuloom_tenant_memory_used_bytes", "Device memory that the tenant holds.", labels,
               Number(now.memory_used_bytes));
    out->Gauge("gpuloom_tenant_memory_quota_bytes", "Device memory that the tenant may hold.",
               labels, Number(now.memory_quota_bytes));
    out->Gauge("gpuloom_tenant_memory_peak_bytes",
               "The most device memory that the tenant has held.", labels,
               Number(tenant.memory_peak_bytes));
    out->Gauge("gpuloom_tenant_memory_waiting",
               "Requests of the tenant that wait for memory of others.", labels,
               Number(now.memory_waiting));
    out->Gauge("gpuloom_tenant_slots", "Slots that the tenant has.", labels, Number(now.slots));
    out->Gauge("gpuloom_tenant_sessions", "Processes of the tenant with a CUDA context.", labels,
               Number(now.sessions));
    out->Gauge("gpuloom_tenant_suspended", "1 while an operator has suspended the tenant.", labels,
               now.suspended ? 1 : 0);
    out->Gauge("gpuloom_tenant_partition_pending",
               "1 while the tenant keeps other multiprocessors than the policy says, because there "
               "is no room.",
               labels, now.partition_pending ? 1 : 0);
    out->Gauge("gpuloom_tenant_unsupported_calls",
               "Different CUDA functions and features that the tenant has asked for in vain.",
               labels, Number(now.unsupported_count));
  }
  // A name by a table of ours, and one word for all others: a program cannot make labels.
  std::set<std::string> calls = tenant.unsupported;
  if (tenant.other_unsupported) calls.insert("other");
  for (const std::string& call : calls) {
    out->Gauge("gpuloom_tenant_unsupported_call",
               "1 for each CUDA function that the tenant has asked for in vain; what is none of "
               "CUDA's is call=\"other\".",
               And(labels, "call", call), 1);
  }
  const TenantCounts& counts = tenant.counts;
  out->Engines("gpuloom_tenant_gpu_seconds_total",
               "Time of the GPU's engines that the tenant was charged.", labels, counts.time);
  out->Counter("gpuloom_tenant_held_seconds_total",
               "Time in which the tenant's work was kept away because it was suspended.", labels,
               Seconds(counts.time.held_ns));
  out->Counter("gpuloom_tenant_kernels_total", "Kernels that the tenant has launched.", labels,
               Number(counts.kernels));
  out->Counter("gpuloom_tenant_long_kernels_total",
               "Kernels of the tenant that ran for longer than a limit of maxKernelTime.", labels,
               Number(counts.long_kernels));
  out->Counter("gpuloom_tenant_batches_total",
               "Groups of the tenant's launches that were submitted together.", labels,
               Number(counts.work.batches));
  out->Copies("gpuloom_tenant_copies_total",
              "Copies of the tenant, without those in its own graphs.", labels, counts.work);
  out->Bytes("gpuloom_tenant_copied_bytes_total",
             "Bytes that the tenant has copied, without those in its own graphs.", labels,
             counts.work);
  out->Histogram("gpuloom_tenant_queue_wait_seconds",
                 "How long the tenant's work was ready and waited, each time that it was let go.",
                 labels, counts.work.queue);
  out->Histogram("gpuloom_tenant_throttled_seconds",
                 "The same, as far as a ceiling of the policy (timeShareMax) kept it.", labels,
                 counts.work.throttled);
  out->Histogram("gpuloom_tenant_completion_seconds",
                 "From the submission of kernels to the GPU, after their wait for it, until they "
                 "were seen complete.",
                 labels, counts.work.completion);
  out->Counter("gpuloom_tenant_sessions_started_total",
               "Processes of the tenant that got a CUDA context.", labels,
               Number(counts.sessions_begun));
  out->Refusals("gpuloom_tenant_refusals_total",
                "Allocations that the quota has refused (memory), and processes that were not let "
                "in (session).",
                labels, counts);
  out->Faults("gpuloom_tenant_faults_total",
              "Processes of the tenant that gpuloom had to end, by the reason.", labels, counts);
}

void AddNamespace(const std::string& name, const NamespaceUse& use, Families* out) {
  const Labels labels = {{"namespace", name}};
  out->Engines("gpuloom_namespace_gpu_seconds_total",
               "Time of the GPUs' engines that the namespace's tenants were charged.", labels,
               use.counts.time);
  out->Counter("gpuloom_namespace_memory_byte_seconds_total",
               "Device memory that the namespace's tenants held, times the time.", labels,
               use.memory_byte_seconds);
  out->Counter("gpuloom_namespace_quota_byte_seconds_total",
               "Device memory that the namespace's tenants were promised, times the time.", labels,
               use.quota_byte_seconds);
  out->Counter("gpuloom_namespace_slot_seconds_total",
               "Slots that the namespace's tenants had, times the time.", labels, use.slot_seconds);
  out->Counter("gpuloom_namespace_kernels_total",
               "Kernels that the namespace's tenants have launched.", labels,
               Number(use.counts.kernels));
  out->Bytes("gpuloom_namespace_copied_bytes_total",
             "Bytes that the namespace's tenants have copied, without those in their own graphs.",
             labels, use.counts.work);
  out->Refusals("gpuloom_namespace_refusals_total",
                "Allocations that quotas have refused (memory), and processes that were not let "
                "in (session).",
                labels, use.counts);
  out->Faults("gpuloom_namespace_faults_total",
              "Processes of the namespace that gpuloom had to end, by the reason.", labels,
              use.counts);
}

void AddDomain(const std::string& gpu_uuid, const std::string& name, const DomainUse& domain,
               bool is_known, Families* out) {
  const Labels labels = {{"gpu", gpu_uuid}, {"trust_domain", name}};
  if (is_known) {
    out->Gauge("gpuloom_domain_executors", "Executors of the trust domain that run.", labels,
               Number(domain.executors));
    // Empty for a scheduler before control 3.7, and while no executor serves.
    if (!domain.executor_version.empty()) {
      out->Gauge("gpuloom_domain_executor_info",
                 "1; the release of the executor that serves the trust domain.",
                 And(labels, "version", domain.executor_version), 1);
    }
    out->Gauge("gpuloom_domain_sessions", "Processes of the trust domain with a CUDA context.",
               labels, Number(domain.sessions));
    out->Gauge("gpuloom_domain_tenants", "Containers of the trust domain that have slots.", labels,
               Number(domain.allocations));
    out->Gauge("gpuloom_domain_overrun_wait_seconds",
               "Time of the GPU that the others are to have before the trust domain, which was at "
               "the device for long after its turn, gets one again.",
               labels, Seconds(domain.overrun_wait_ns));
    out->Gauge("gpuloom_domain_slots", "Slots that the trust domain's containers have.", labels,
               Number(domain.slots));
    out->Gauge("gpuloom_domain_memory_promised_bytes",
               "The sum of the quotas of the trust domain's tenants.", labels,
               Number(domain.memory_promised_bytes));
    out->Gauge("gpuloom_domain_memory_used_bytes",
               "The GPU's memory that the trust domain's tenants hold.", labels,
               Number(domain.memory_used_bytes));
  }
  out->Engines("gpuloom_domain_busy_seconds_total",
               "Time for which the GPU's engines were busy for the trust domain.", labels,
               domain.counts.busy);
  out->Counter("gpuloom_domain_executors_started_total",
               "Executors of the trust domain that were started.", labels,
               Number(domain.counts.started));
  out->Counter("gpuloom_domain_executors_failed_total",
               "Executors of the trust domain that ended before they were ready.", labels,
               Number(domain.counts.failed));
  out->Counter("gpuloom_domain_executors_lost_total",
               "Executors of the trust domain that ended under their tenants.", labels,
               Number(domain.counts.lost));
}

void AddGpu(const std::string& uuid, const GpuUse& gpu, Clock::Duration wall_ahead, Families* out) {
  const Labels labels = {{"gpu", uuid}};
  out->Counter("gpuloom_gpu_scheduler_restarts_total",
               "How often another scheduler was found for the GPU than the one before.", labels,
               Number(gpu.scheduler_restarts));
  out->Gauge("gpuloom_gpu_report_timestamp_seconds", "When the GPU's scheduler answered last.",
             labels, UnixSeconds(gpu.reported_at + wall_ahead));
  // A scheduler before control 3.3 says nothing of its GPU: better no series than one of zeros.
  if (!gpu.tells_gpu) return;
  if (gpu.is_answering) {
    const control::GpuState& state = gpu.state;
    out->Gauge("gpuloom_gpu_info", "1; the GPU's product and the release of its scheduler.",
               And(And(labels, "product", gpu.name), "version", gpu.version), 1);
    out->Gauge("gpuloom_gpu_memory_bytes", "The GPU's memory.", labels, Number(state.memory_bytes));
    out->Gauge("gpuloom_gpu_memory_used_bytes", "The GPU's memory that tenants hold.", labels,
               Number(state.memory_used_bytes));
    out->Gauge("gpuloom_gpu_memory_free_bytes",
               "The GPU's memory that tenants do not hold; executors' own contexts take of it.",
               labels,
               Number(state.memory_bytes - std::min(state.memory_bytes, state.memory_used_bytes)));
    out->Gauge("gpuloom_gpu_memory_promised_bytes", "The sum of all tenants' quotas.", labels,
               Number(state.memory_promised_bytes));
    out->Gauge("gpuloom_gpu_executors", "Executors that run, those that are ending included.",
               labels, Number(state.executors));
    out->Gauge("gpuloom_gpu_sessions", "Processes with a CUDA context on the GPU.", labels,
               Number(state.sessions));
  }
  out->Engines("gpuloom_gpu_busy_seconds_total",
               "Time for which the GPU's engines were busy for tenants.", labels, gpu.counts.busy);
  out->Counter("gpuloom_gpu_executors_started_total", "Executors that were started.", labels,
               Number(gpu.counts.started));
  out->Counter("gpuloom_gpu_executors_failed_total", "Executors that ended before they were ready.",
               labels, Number(gpu.counts.failed));
  out->Counter("gpuloom_gpu_executors_lost_total", "Executors that ended under their tenants.",
               labels, Number(gpu.counts.lost));
}

void AddNode(const NodeFigures& node, const Ledger& ledger, Families* out) {
  out->Gauge("gpuloom_build_info", "1; the agent's release.", {{"version", kVersion}}, 1);
  out->Gauge("gpuloom_node_gpus", "GPUs of the node that have a state, whichever.", {},
             Number(node.gpus.size()));
  out->Gauge("gpuloom_node_gpu_unusable",
             "1 while the node has a GPU that cannot be used and has no state: its driver does not "
             "answer, or it cannot be named, or was never shared.",
             {}, node.has_unusable_gpu ? 1 : 0);
  for (const NodeFigures::OneGpu& one : node.gpus) {
    const Labels labels = {{"gpu", one.gpu.uuid}};
    const auto known = ledger.gpus.find(one.gpu.uuid);
    out->Gauge("gpuloom_gpu_scheduler_up", "1 while the GPU's scheduler answers.", labels,
               known != ledger.gpus.end() && known->second.is_answering ? 1 : 0);
    out->Gauge("gpuloom_gpu_healthy",
               "1 while the kubelet is told that the GPU's slots can be used.", labels,
               one.standing.state == GpuState::kHealthy ? 1 : 0);
    // A series for each state, so that a query by label finds 0 and not nothing.
    for (size_t i = 0; i < std::size(kGpuStateNames); ++i) {
      out->Gauge("gpuloom_gpu_state", "1 for the state that the GPU is in, 0 for the others.",
                 And(labels, "state", kGpuStateNames[i]),
                 static_cast<size_t>(one.standing.state) == i ? 1 : 0);
    }
    out->Gauge("gpuloom_gpu_slots", "Slots of the GPU.", labels, Number(one.standing.slots));
    out->Gauge("gpuloom_gpu_slots_allocated", "Slots of the GPU that containers were given.",
               labels, Number(one.standing.held));
    out->Gauge("gpuloom_gpu_slots_beyond",
               "Those of them that the GPU had before its number of slots was lowered.", labels,
               Number(one.standing.beyond));
    out->Gauge("gpuloom_gpu_slots_withheld",
               "Free slots that nobody is given, because no memory is left for them.", labels,
               Number(one.standing.withheld));
    out->Gauge("gpuloom_gpu_slot_memory_promised_bytes",
               "Memory that the holders of slots were promised.", labels,
               Number(one.standing.promised_bytes));
    out->Gauge("gpuloom_gpu_slot_memory_bytes", "Memory that there is for slots.", labels,
               Number(one.standing.available_bytes));
    out->Gauge("gpuloom_policy_rules_impossible",
               "Rules of the policy that promise more memory than the GPU has; their pods are "
               "refused there.",
               labels, Number(one.standing.impossible_rules));
  }
  out->Counter("gpuloom_events_posted_total",
               "Posts of Kubernetes events that the API server took.", {},
               Number(node.events_posted));
  out->Counter("gpuloom_events_dropped_total",
               "Events that nobody will read in Kubernetes: their pod is gone, the server refused "
               "them, or a namespace had too many.",
               {}, Number(node.events_dropped));
  out->Gauge("gpuloom_agent_allocations",
             "Containers that were given slots and are not known to be over.", {},
             Number(node.allocations));
  out->Gauge("gpuloom_agent_bound_allocations", "Those of them whose pod is known.", {},
             Number(node.bound_allocations));
  out->Gauge("gpuloom_kubelet_watches",
             "Watches of kubelets on the device list; without one no pod can be placed here.", {},
             Number(node.watches));
  out->Counter("gpuloom_kubelet_registrations_total", "Registrations that a kubelet has taken.", {},
               Number(node.registrations));
  // These keys are the agent's own, and all are there from the beginning, with 0.
  for (const auto& [call, count] : node.kubelet_errors) {
    out->Counter("gpuloom_kubelet_errors_total",
                 "Calls of the kubelet that failed, and watches that it ended (watch).",
                 {{"call", call}}, Number(count));
  }
  for (const auto& [call, count] : node.requests) {
    out->Counter("gpuloom_kubelet_requests_total",
                 "Requests of the kubelet, those that the agent has refused included.",
                 {{"call", call}}, Number(count));
  }
  for (const auto& [call, count] : node.refusals) {
    out->Counter("gpuloom_kubelet_refusals_total",
                 "Requests of the kubelet that the agent has refused.", {{"call", call}},
                 Number(count));
  }
}

void AddPolicy(const NodeFigures& node, const PolicyHistory& policy, Clock::Duration wall_ahead,
               Families* out) {
  out->Gauge("gpuloom_policy_in_force", "1 while a policy is in force; else nobody gets slots.", {},
             node.has_policy ? 1 : 0);
  out->Gauge("gpuloom_policy_generation",
             "How many policies the agent has put in force since it began.", {},
             Number(policy.generation));
  out->Gauge("gpuloom_policy_error", "1 while the policy's file is refused.", {},
             policy.trouble.empty() ? 0 : 1);
  out->Gauge("gpuloom_policy_grants_failed",
             "Grants of the policy that containers do not have, because they could not be recorded "
             "or the scheduler refused them; tried again.",
             {}, Number(node.failed_grants.size()));
  // Before the first one there is no time to tell.
  if (policy.generation != 0) {
    out->Gauge("gpuloom_policy_change_timestamp_seconds",
               "When the policy in force was taken over.", {},
               UnixSeconds(policy.changed_at + wall_ahead));
  }
  if (!policy.last_error.empty()) {
    out->Gauge("gpuloom_policy_error_timestamp_seconds",
               "When the policy's file was refused last, first seen; absent: never.", {},
               UnixSeconds(policy.error_at + wall_ahead));
  }
}

}  // namespace

void PolicyHistory::Follow(const NodeFigures& node, Clock::Time now) {
  // When it was seen, which is a look of the observer late at most.
  if (node.policy_generation != generation) changed_at = now;
  generation = node.policy_generation;
  // The last error stays when the file is right again: `trouble` says whether it is.
  if (!node.policy_trouble.empty() && node.policy_trouble != trouble) {
    last_error = node.policy_trouble;
    error_at = now;
  }
  trouble = node.policy_trouble;
}

std::string FormatMetrics(const Ledger& ledger, const NodeFigures& node,
                          const PolicyHistory& policy, Clock::Duration wall_ahead) {
  Families families;
  AddNode(node, ledger, &families);
  AddPolicy(node, policy, wall_ahead, &families);
  for (const auto& [uuid, gpu] : ledger.gpus) {
    AddGpu(uuid, gpu, wall_ahead, &families);
    for (const auto& [name, domain] : gpu.domains) {
      AddDomain(uuid, name, domain, gpu.is_answering, &families);
    }
  }
  for (const auto& [name, tenant] : ledger.tenants) {
    const auto gpu = ledger.gpus.find(name.gpu_uuid);
    AddTenant(name, tenant, gpu != ledger.gpus.end() && gpu->second.is_answering, &families);
  }
  for (const auto& [name, use] : ledger.namespaces) AddNamespace(name, use, &families);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families.all());
  return out.str();
}

}  // namespace gpuloom
