// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/share_history.h"

#include <algorithm>

namespace gpuloom {
namespace {

// `shares_of(i)` are those of step i. Steps without the name are 0.
template <typename Name, typename Shares>
std::vector<double> SeriesOf(const Name& name, size_t steps, Shares shares_of) {
  std::vector<double> series(steps);
  bool is_any = false;
  for (size_t i = 0; i < steps; ++i) {
    const auto& shares = shares_of(i);
    const auto found = shares.find(name);
    if (found == shares.end()) continue;
    series[i] = found->second;
    is_any = true;
  }
  return is_any ? series : std::vector<double>();
}

}  // namespace

void ShareHistory::Follow(const Ledger& ledger, Clock::Time now) {
  const bool is_first = began_ == Clock::Time();
  if (!is_first && now - began_ < kStep) return;
  // What was computed since the last step.
  std::map<TenantName, uint64_t> tenants_ns, of_tenants_ns;
  std::map<std::string, uint64_t> gpus_ns, of_gpus_ns, of_gpus_tenants_ns;
  for (const auto& [name, tenant] : ledger.tenants) {
    const uint64_t ns = tenants_ns[name] = tenant.counts.time.compute_ns;
    const auto before = tenants_ns_.find(name);
    // All figures of a tenant that was not known before are new, except in the first step, when they may be old.
    const uint64_t known_ns = before == tenants_ns_.end() ? (is_first ? ns : 0) : before->second;
    if (ns <= known_ns) continue;
    of_tenants_ns[name] = ns - known_ns;
    of_gpus_tenants_ns[name.gpu_uuid] += ns - known_ns;
  }
  for (const auto& [uuid, gpu] : ledger.gpus) {
    const uint64_t ns = gpus_ns[uuid] = gpu.counts.busy.compute_ns;
    const auto before = gpus_ns_.find(uuid);
    // A GPU that is new to the ledger has its whole past in its first figure.
    if (before != gpus_ns_.end() && ns > before->second) of_gpus_ns[uuid] = ns - before->second;
  }
  // With what reports tell late there may be more than the step is long: that is all of it, for the GPU and its tenants together.
  const uint64_t step_ns = static_cast<uint64_t>(std::chrono::nanoseconds(now - began_).count());
  const auto share = [&](uint64_t ns, const std::string& gpu) {
    const auto all_ns = std::max({step_ns, of_gpus_ns[gpu], of_gpus_tenants_ns[gpu]});
    return static_cast<double>(ns) / static_cast<double>(all_ns);
  };
  Step step;
  for (const auto& [name, ns] : of_tenants_ns) step.tenants[name] = share(ns, name.gpu_uuid);
  for (const auto& [uuid, ns] : of_gpus_ns) step.gpus[uuid] = share(ns, uuid);
  tenants_ns_ = std::move(tenants_ns);
  gpus_ns_ = std::move(gpus_ns);
  began_ = now;
  // Only a beginning: what was charged before it belongs to no step.
  if (is_first) return;
  steps_.push_back(std::move(step));
  if (steps_.size() > kSteps) steps_.pop_front();
}

std::vector<double> ShareHistory::Of(const TenantName& tenant) const {
  return SeriesOf(
      tenant, steps_.size(), [this](size_t i) -> const auto& { return steps_[i].tenants; });
}

std::vector<double> ShareHistory::OfGpu(const std::string& uuid) const {
  return SeriesOf(
      uuid, steps_.size(), [this](size_t i) -> const auto& { return steps_[i].gpus; });
}

}  // namespace gpuloom
