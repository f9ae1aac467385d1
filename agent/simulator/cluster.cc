// SPDX-License-Identifier: Apache-2.0
// Runs GPUs one after another and adds up what they did; reports are tables of fixed width.
#include "agent/simulator/cluster.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace gpuloom::simulator {
namespace {

constexpr const char* kClassNames[] = {"high", "normal", "low"};

// Longer lines are cut: a name may be of any length.
__attribute__((format(printf, 2, 3))) void Print(std::string* text, const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  *text += line;
}

double Ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

// The sample at that rank of the sorted ones, without interpolation; "-" without samples.
std::string Percentile(const std::vector<uint64_t>& sorted_ns, size_t percent) {
  if (sorted_ns.empty()) return "-";
  char text[32];
  const size_t at = std::min(sorted_ns.size() - 1, sorted_ns.size() * percent / 100);
  std::snprintf(text, sizeof(text), "%.3f", Ms(sorted_ns[at]));
  return text;
}

// One of the four kinds that clusters have, with each number drawn from a range. The class follows
// from the kind: those that answer users go first.
TenantSpec RandomTenant(Random* random) {
  constexpr uint64_t kUs = 1'000;
  constexpr uint64_t kMs = 1'000'000;
  TenantSpec tenant;
  tenant.space = static_cast<uint32_t>(random->Below(3));
  tenant.policy.weight = static_cast<uint32_t>(random->Between(50, 200));
  // Lengths differ by up to a fifth.
  tenant.jitter_permille = 200;
  switch (random->Below(4)) {
    case 0:  // a server
      tenant.policy.priority = arbiter::Priority::kHigh;
      tenant.kernel_ns = random->Between(50 * kUs, 100 * kUs);
      tenant.width_permille = 300;
      tenant.request_gap_ns = random->Between(20 * kMs, 80 * kMs);
      tenant.request_kernels = static_cast<uint32_t>(random->Between(5, 20));
      tenant.on_ns = tenant.off_ns = 50 * kMs;
      break;
    case 1:  // a training
      tenant.policy.priority = arbiter::Priority::kLow;
      tenant.kernel_ns = random->Between(200 * kUs, 800 * kUs);
      break;
    case 2:  // a notebook: mostly nothing
      tenant.kernel_ns = random->Between(100 * kUs, 2 * kMs);
      tenant.request_gap_ns = 40 * kMs;
      tenant.on_ns = 20 * kMs;
      tenant.off_ns = 200 * kMs;
      break;
    default:  // a batch job
      tenant.kernel_ns = random->Between(300 * kUs, kMs);
      tenant.width_permille = 600;
      tenant.streams = 2;
  }
  return tenant;
}

// As a policy's trustDomain would: it is the namespace's.
void DrawDomains(GpuSpec* gpu, Random* random) {
  uint32_t domains = 1;  // the first is for those that share one
  for (uint32_t space = 0; space < gpu->spaces.size(); ++space) {
    const bool shares = random->Below(2) == 0;
    const bool splits = random->Below(3) == 0;
    const uint32_t own = domains;
    for (TenantSpec& tenant : gpu->tenants) {
      if (tenant.space != space || shares) continue;
      if (splits || domains == own) ++domains;
      tenant.domain = domains - 1;
    }
  }
}

// One GPU, a line for each tenant.
std::string ReportTenants(const Arguments& arguments) {
  std::string text;
  Gpu gpu(arguments.gpu, arguments.seed);
  gpu.RunTo(arguments.span_ns);
  const double span_ns = static_cast<double>(arguments.span_ns);
  Print(&text, "%-20s %-12s %-7s %8s %11s %9s %9s %11s %11s\n", "tenant", "namespace", "class",
        "share %", "kernels/s", "p50 ms", "p99 ms", "no end ms", "throttled %");
  for (uint32_t i = 0; i < arguments.gpu.tenants.size(); ++i) {
    const TenantSpec& tenant = arguments.gpu.tenants[i];
    const TenantResult result = gpu.Result(i);
    Print(&text, "%-20.20s %-12.12s %-7s %8.2f %11.0f %9s %9s %11.3f %11.2f\n", tenant.name.c_str(),
          arguments.spaces[tenant.space].c_str(),
          kClassNames[arbiter::Index(tenant.policy.priority)],
          100.0 * static_cast<double>(result.charged_ns) / span_ns,
          static_cast<double>(result.kernels) * 1e9 / span_ns,
          Percentile(result.latency_ns, 50).c_str(), Percentile(result.latency_ns, 99).c_str(),
          Ms(result.longest_gap_ns),
          100.0 * static_cast<double>(result.waits.throttled_ns) / span_ns);
  }
  Print(&text, "device busy %.2f %%, idle with queued work %.2f %%\n",
        100.0 * static_cast<double>(gpu.busy_ns()) / span_ns,
        100.0 * static_cast<double>(gpu.wasted_ns()) / span_ns);
  return text;
}

}  // namespace

// Three namespaces, whose weights double. Tenants are dealt out to the GPUs in turn, so all have
// about as many.
std::vector<GpuSpec> RandomCluster(uint32_t tenants, uint32_t gpus, uint64_t seed) {
  Random random(seed);
  std::vector<GpuSpec> cluster(gpus);
  for (GpuSpec& gpu : cluster) gpu.spaces = {{.weight = 100}, {.weight = 200}, {.weight = 400}};
  for (uint32_t i = 0; i < tenants; ++i) cluster[i % gpus].tenants.push_back(RandomTenant(&random));
  for (GpuSpec& gpu : cluster) DrawDomains(&gpu, &random);
  return cluster;
}

// Each GPU has a seed of its own, so that equal ones do not do the same.
ClusterResult RunCluster(const std::vector<GpuSpec>& gpus, uint64_t span_ns, uint64_t seed) {
  ClusterResult sum;
  for (const GpuSpec& spec : gpus) {
    Gpu gpu(spec, seed++);
    gpu.RunTo(span_ns);
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
      const TenantResult result = gpu.Result(i);
      ClassResult& its = sum.classes[arbiter::Index(spec.tenants[i].policy.priority)];
      ++its.tenants;
      its.charged_ns += result.charged_ns;
      its.kernels += result.kernels;
      // Percentiles need all samples of all GPUs.
      its.latency_ns.insert(its.latency_ns.end(), result.latency_ns.begin(),
                            result.latency_ns.end());
      its.longest_gap_ns = std::max(its.longest_gap_ns, result.longest_gap_ns);
      sum.charged_ns += result.charged_ns;
    }
    sum.busy_ns += gpu.busy_ns();
    sum.remainder_ns += gpu.meter().remainder_ns();
    sum.wasted_ns += gpu.wasted_ns();
    sum.decisions += gpu.decisions();
    sum.steps += gpu.steps();
  }
  for (ClassResult& its : sum.classes) std::sort(its.latency_ns.begin(), its.latency_ns.end());
  return sum;
}

// With several GPUs, or with random tenants, the report is by class and not by tenant.
std::string Report(const Arguments& arguments) {
  if (arguments.random_tenants == 0 && arguments.gpus == 1) return ReportTenants(arguments);
  const std::vector<GpuSpec> gpus =
      arguments.random_tenants == 0
          ? std::vector<GpuSpec>(arguments.gpus, arguments.gpu)
          : RandomCluster(arguments.random_tenants, arguments.gpus, arguments.seed);
  const ClusterResult result = RunCluster(gpus, arguments.span_ns, arguments.seed);
  // Shares are of all devices together.
  const double all_ns = static_cast<double>(arguments.span_ns) * static_cast<double>(gpus.size());
  std::string text;
  Print(&text, "%-7s %8s %8s %12s %10s %9s %9s %11s\n", "class", "tenants", "share %", "kernels",
        "requests", "p50 ms", "p99 ms", "no end ms");
  for (size_t i = 0; i < arbiter::kPriorities; ++i) {
    const ClassResult& its = result.classes[i];
    Print(&text, "%-7s %8u %8.2f %12llu %10zu %9s %9s %11.3f\n", kClassNames[i], its.tenants,
          100.0 * static_cast<double>(its.charged_ns) / all_ns,
          static_cast<unsigned long long>(its.kernels), its.latency_ns.size(),
          Percentile(its.latency_ns, 50).c_str(), Percentile(its.latency_ns, 99).c_str(),
          Ms(its.longest_gap_ns));
  }
  Print(&text, "%zu devices busy %.2f %%, idle with queued work %.2f %%; %llu decisions, ",
        gpus.size(), 100.0 * static_cast<double>(result.busy_ns) / all_ns,
        100.0 * static_cast<double>(result.wasted_ns) / all_ns,
        static_cast<unsigned long long>(result.decisions));
  Print(&text, "%.1f steps each\n",
        static_cast<double>(result.steps) /
            static_cast<double>(std::max<uint64_t>(result.decisions, 1)));
  return text;
}

}  // namespace gpuloom::simulator
