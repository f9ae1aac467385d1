// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/simulation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "agent/answer/table.h"

namespace gpuloom {
namespace {

using arbiter::Priority;

constexpr std::array<const char*, arbiter::kPriorities> kClassNames = {"high", "normal", "low"};

const char* ClassName(const SimulatedTenant& tenant) {
  return kClassNames[arbiter::Index(tenant.spec.policy.priority)];
}

double Percent(uint64_t part_ns, uint64_t whole_ns) {
  return whole_ns == 0 ? 0 : 100.0 * static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

// As the simulator's own table: without interpolation.
std::optional<uint64_t> Percentile(const std::vector<uint64_t>& sorted_ns, size_t percent) {
  if (sorted_ns.empty()) return std::nullopt;
  return sorted_ns[std::min(sorted_ns.size() - 1, sorted_ns.size() * percent / 100)];
}

std::string Cell(double number, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, number);
  return text;
}

double Ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

std::string MsCell(std::optional<uint64_t> ns) { return ns ? Cell(Ms(*ns), 3) : kNotSaid; }

Json MsField(std::optional<uint64_t> ns) { return ns ? Json(Ms(*ns)) : Json(nullptr); }

// Tenants of which one figure is given.
struct Sum {
  uint32_t tenants = 0;
  uint64_t charged_ns = 0;
  uint64_t kernels = 0;
  std::vector<uint64_t> latency_ns;
  uint64_t longest_gap_ns = 0;
  // Of the tenant whose p99 is the longest.
  std::optional<uint64_t> worst_p99_ns;
  const SimulatedTenant* worst = nullptr;

  void Add(const SimulatedTenant& tenant) {
    const simulator::TenantResult& its = tenant.result;
    ++tenants;
    charged_ns += its.charged_ns;
    kernels += its.kernels;
    latency_ns.insert(latency_ns.end(), its.latency_ns.begin(), its.latency_ns.end());
    longest_gap_ns = std::max(longest_gap_ns, its.longest_gap_ns);
    const std::optional<uint64_t> p99_ns = Percentile(its.latency_ns, 99);
    if (!p99_ns || (worst_p99_ns && *p99_ns <= *worst_p99_ns)) return;
    worst_p99_ns = p99_ns;
    worst = &tenant;
  }
};

// By namespace and class, in the order of the namespaces' numbers.
std::map<std::pair<uint32_t, Priority>, Sum> Sums(const Simulation& simulation) {
  std::map<std::pair<uint32_t, Priority>, Sum> sums;
  for (const SimulatedTenant& tenant : simulation.tenants) {
    sums[{tenant.spec.space, tenant.spec.policy.priority}].Add(tenant);
  }
  for (auto& [key, sum] : sums) std::sort(sum.latency_ns.begin(), sum.latency_ns.end());
  return sums;
}

uint64_t AllNs(const Simulation& simulation) { return simulation.span_ns * simulation.gpus.size(); }

}  // namespace

Simulation SimulateGpus(const simulator::Arguments& arguments, uint32_t gpus) {
  Simulation simulation{arguments.spaces, arguments.span_ns, {}, {}};
  for (const simulator::TenantSpec& spec : arguments.gpu.tenants) {
    const auto gpu = static_cast<uint32_t>(simulation.tenants.size() % gpus);
    simulation.tenants.push_back({spec, gpu, {}});
  }
  for (uint32_t number = 0; number < gpus; ++number) {
    simulator::GpuSpec spec = arguments.gpu;
    spec.tenants.clear();
    std::vector<SimulatedTenant*> its;
    // Only the domains that are there: each costs a GPU time in every step.
    std::map<uint32_t, uint32_t> domains;
    for (SimulatedTenant& tenant : simulation.tenants) {
      if (tenant.gpu != number) continue;
      its.push_back(&tenant);
      spec.tenants.push_back(tenant.spec);
      uint32_t& domain = spec.tenants.back().domain;
      domain = domains.emplace(domain, static_cast<uint32_t>(domains.size())).first->second;
    }
    simulator::Gpu gpu(spec, arguments.seed + number);
    gpu.RunTo(arguments.span_ns);
    for (uint32_t i = 0; i < its.size(); ++i) its[i]->result = gpu.Result(i);
    simulation.gpus.push_back({gpu.busy_ns(), gpu.wasted_ns()});
  }
  return simulation;
}

std::string SimulationTable(const Simulation& simulation) {
  std::vector<std::vector<std::string>> rows = {{"NAMESPACE", "CLASS", "TENANTS", "SHARE %",
                                                 "KERNELS/S", "REQUESTS", "P50 MS", "P99 MS",
                                                 "WORST P99 MS", "OF", "NO END MS"}};
  const uint64_t all_ns = AllNs(simulation);
  for (const auto& [key, sum] : Sums(simulation)) {
    rows.push_back(
        {simulation.spaces[key.first], kClassNames[arbiter::Index(key.second)],
         std::to_string(sum.tenants), Cell(Percent(sum.charged_ns, all_ns), 2),
         Cell(static_cast<double>(sum.kernels) * 1e9 / static_cast<double>(simulation.span_ns), 0),
         std::to_string(sum.latency_ns.size()), MsCell(Percentile(sum.latency_ns, 50)),
         MsCell(Percentile(sum.latency_ns, 99)), MsCell(sum.worst_p99_ns),
         sum.worst == nullptr ? kNotSaid
                              : sum.worst->spec.name + " on GPU " + std::to_string(sum.worst->gpu),
         Cell(Ms(sum.longest_gap_ns), 3)});
  }
  uint64_t busy_ns = 0;
  uint64_t wasted_ns = 0;
  for (const Simulation::Gpu& gpu : simulation.gpus) {
    busy_ns += gpu.busy_ns;
    wasted_ns += gpu.wasted_ns;
  }
  return FormatTable(rows) + std::to_string(simulation.gpus.size()) + " GPUs busy " +
         Cell(Percent(busy_ns, all_ns), 2) + " %, idle with queued work " +
         Cell(Percent(wasted_ns, all_ns), 2) + " %\n";
}

Json SimulationDocument(const Simulation& simulation) {
  Json gpus = Json::array();
  for (const Simulation::Gpu& gpu : simulation.gpus) {
    gpus.push_back({{"gpu", gpus.size()},
                    {"busy_percent", Percent(gpu.busy_ns, simulation.span_ns)},
                    {"idle_with_work_percent", Percent(gpu.wasted_ns, simulation.span_ns)}});
  }
  Json classes = Json::array();
  for (const auto& [key, sum] : Sums(simulation)) {
    classes.push_back({{"namespace", simulation.spaces[key.first]},
                       {"priority", kClassNames[arbiter::Index(key.second)]},
                       {"tenants", sum.tenants},
                       {"share_percent", Percent(sum.charged_ns, AllNs(simulation))},
                       {"kernels", sum.kernels},
                       {"requests", sum.latency_ns.size()},
                       {"p50_ms", MsField(Percentile(sum.latency_ns, 50))},
                       {"p99_ms", MsField(Percentile(sum.latency_ns, 99))},
                       {"worst_p99_ms", MsField(sum.worst_p99_ns)},
                       {"longest_gap_ms", Ms(sum.longest_gap_ns)}});
  }
  Json tenants = Json::array();
  for (const SimulatedTenant& it : simulation.tenants) {
    tenants.push_back(
        {{"namespace", simulation.spaces[it.spec.space]},
         {"name", it.spec.name},
         {"gpu", it.gpu},
         {"priority", ClassName(it)},
         {"share_percent", Percent(it.result.charged_ns, simulation.span_ns)},
         {"kernels", it.result.kernels},
         {"requests", it.result.latency_ns.size()},
         {"p50_ms", MsField(Percentile(it.result.latency_ns, 50))},
         {"p99_ms", MsField(Percentile(it.result.latency_ns, 99))},
         {"longest_gap_ms", Ms(it.result.longest_gap_ns)},
         {"throttled_percent", Percent(it.result.waits.throttled_ns, simulation.span_ns)}});
  }
  return {{"seconds", static_cast<double>(simulation.span_ns) / 1e9},
          {"gpus", gpus},
          {"classes", classes},
          {"tenants", tenants}};
}

}  // namespace gpuloom
