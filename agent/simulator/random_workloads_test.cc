// SPDX-License-Identifier: Apache-2.0
// What docs/design/sharing-time.md promises of waiting, shares between trust domains, and ceilings, over random
// workloads. Each bound is the document's, computed from the workload; the seeds are in the messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "agent/simulator/gpu.h"

namespace gpuloom::simulator {
namespace {

using arbiter::Priority;

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kSeeds = 20;

uint64_t LongestNs(const TenantSpec& tenant) {
  return tenant.kernel_ns + tenant.kernel_ns * tenant.jitter_permille / 1000;
}

// The longest kernel of all in these classes.
uint64_t LongestNs(const GpuSpec& spec, const std::set<Priority>& classes) {
  uint64_t longest_ns = 0;
  for (const TenantSpec& it : spec.tenants) {
    if (classes.contains(it.policy.priority)) longest_ns = std::max(longest_ns, LongestNs(it));
  }
  return longest_ns;
}

// Requests of a known length at known moments, in bursts.
TenantSpec Server(Random* random, uint64_t span_ns) {
  TenantSpec tenant;
  tenant.policy.priority = Priority::kHigh;
  tenant.kernel_ns = random->Between(10 * kUs, 200 * kUs);
  // Long before the others: from then on its kernels can be predicted.
  tenant.trace.push_back({random->Below(kMs), tenant.kernel_ns, 1});
  const uint64_t gap_ns = random->Between(500 * kUs, 10 * kMs);
  for (uint64_t at_ns = 50 * kMs; at_ns < span_ns;) {
    for (uint64_t left = random->Between(1, 30); left != 0; --left) {
      // A fifth of the device on average, more within a burst.
      const uint64_t most = std::max<uint64_t>(1, 2 * gap_ns / 5 / tenant.kernel_ns);
      const auto kernels = static_cast<uint32_t>(random->Between(1, most));
      tenant.trace.push_back({at_ns, tenant.kernel_ns, kernels});
      at_ns += random->Exponential(gap_ns);
    }
    at_ns += random->Below(200 * kMs);
  }
  return tenant;
}

// Of a lower class, of any kind.
TenantSpec Lower(Random* random, Priority priority) {
  TenantSpec tenant;
  tenant.policy.priority = priority;
  tenant.policy.weight = static_cast<uint32_t>(random->Between(10, 1000));
  tenant.kernel_ns = random->Between(20 * kUs, 5 * kMs);
  tenant.jitter_permille = static_cast<uint32_t>(random->Below(300));
  tenant.width_permille = static_cast<uint32_t>(random->Between(10, 1000));
  tenant.streams = static_cast<uint32_t>(random->Between(1, 4));
  tenant.request_kernels = static_cast<uint32_t>(random->Between(1, 20));
  if (random->Below(2) == 0) tenant.request_gap_ns = random->Between(kMs, 20 * kMs);
  if (random->Below(2) == 0) tenant.on_ns = tenant.off_ns = random->Between(5 * kMs, 50 * kMs);
  return tenant;
}

// When each request of a trace is done at the latest, if the device does nothing but these requests, in their order, is
// theirs for this part of the time, and each time that it turns to them waits for so long first.
std::vector<uint64_t> LatestEndsNs(const std::vector<Arrival>& trace, uint64_t wait_ns,
                                   double part) {
  std::vector<uint64_t> ends_ns;
  uint64_t end_ns = 0;
  for (const Arrival& it : trace) {
    end_ns = std::max(end_ns, it.at_ns + wait_ns) +
             static_cast<uint64_t>(static_cast<double>(it.kernels * it.kernel_ns) / part);
    ends_ns.push_back(end_ns);
  }
  return ends_ns;
}

// The most that a normal tenant has at the device while it is alone.
uint64_t AheadNs(const GpuSpec& spec) {
  uint64_t ahead_ns = 0;
  for (const TenantSpec& it : spec.tenants) {
    if (it.policy.priority != Priority::kNormal) continue;
    const uint64_t of_stream_ns = std::max(8 * kMs, 2 * LongestNs(it));
    ahead_ns = std::max(ahead_ns, it.streams * of_stream_ns);
  }
  return ahead_ns;
}

// One running kernel of a lower class, the bound, the executor's reaction, and the queue of its own class. Where a rescue
// may pause it, also one kernel of the rescued class and what is at the device before that, and a tenth of the time.
void ExpectHighWaitsNoLonger(uint64_t seed, bool rescues) {
  SCOPED_TRACE("seed " + std::to_string(seed) + (rescues ? ", with rescues" : ""));
  constexpr uint64_t kSpanNs = 3 * kSecond;
  Random random(seed);
  GpuSpec spec;
  if (!rescues) spec.limits.starvation_ns = 0;
  spec.tenants.push_back(Server(&random, kSpanNs));
  for (uint64_t left = random.Between(1, 6); left != 0; --left) {
    spec.tenants.push_back(
        Lower(&random, random.Below(2) == 0 ? Priority::kNormal : Priority::kLow));
  }
  Gpu gpu(spec, seed);
  gpu.RunTo(kSpanNs + kSecond);
  const std::vector<Arrival>& trace = spec.tenants[0].trace;
  const std::vector<uint64_t>& latencies = gpu.latencies(0);
  ASSERT_EQ(latencies.size(), trace.size());
  uint64_t wait_ns = LongestNs(spec, {Priority::kNormal, Priority::kLow}) +
                     spec.limits.lower_in_flight_ns + spec.reaction_ns;
  if (rescues) wait_ns += LongestNs(spec, {Priority::kLow}) + AheadNs(spec) + spec.reaction_ns;
  const std::vector<uint64_t> ends_ns = LatestEndsNs(trace, wait_ns, rescues ? 0.9 : 1);
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_LE(trace[i].at_ns + latencies[i], ends_ns[i])
        << "request " << i << " at " << trace[i].at_ns / kUs << " us took " << latencies[i] / kUs
        << " us, allowed " << (ends_ns[i] - trace[i].at_ns) / kUs;
  }
}

TEST(RandomWorkloads, HighWaitsForAKernelTheBoundAndItsOwnClass) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) ExpectHighWaitsNoLonger(seed, false);
}

TEST(RandomWorkloads, ARescueDelaysHighByOneMoreKernel) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) ExpectHighWaitsNoLonger(seed, true);
}

// High never stops; n starve behind it, in one class or in two. In each class all have equal weights and kernels.
GpuSpec Starving(Random* random) {
  GpuSpec spec;
  const auto add = [&](Priority priority, uint64_t number) {
    TenantSpec tenant;
    tenant.policy.priority = priority;
    tenant.kernel_ns = random->Between(20 * kUs, 5 * kMs);
    tenant.width_permille = random->Below(2) == 0 ? 1000 : 500;
    for (; number != 0; --number) spec.tenants.push_back(tenant);
  };
  add(Priority::kHigh, random->Between(1, 4));
  add(Priority::kNormal, random->Between(0, 8));
  add(Priority::kLow, random->Between(1, 8));
  return spec;
}

// Of n that starve, each gets on once in the bound on average, or in n pauses and what must pass between them. It may be
// the first in one round and the last in the next.
uint64_t StarvationBoundNs(uint64_t starving, uint64_t bound_ns, uint64_t pause_ns) {
  const uint64_t round_ns = std::max(bound_ns + starving * pause_ns,
                                     starving * arbiter::StarvationGuard::kPauseShare * pause_ns);
  return round_ns * (2 * starving - 1) / starving;
}

TEST(RandomWorkloads, NobodyStarvesForLongerThanPromised) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const GpuSpec spec = Starving(&random);
    Gpu gpu(spec, seed);
    gpu.RunTo(10 * kSecond);
    // A pause lasts until what the higher ones have in flight is done, and one piece of a lower class's.
    uint64_t pause_ns = spec.limits.lower_in_flight_ns +
                        LongestNs(spec, {Priority::kNormal, Priority::kLow}) + 2 * spec.reaction_ns;
    uint64_t starving = 0;
    for (const TenantSpec& it : spec.tenants) {
      const bool high = it.policy.priority == Priority::kHigh;
      if (high) pause_ns += spec.limits.session_in_flight_ns + LongestNs(it);
      starving += high ? 0 : 1;
    }
    const uint64_t bound_ns = StarvationBoundNs(starving, spec.limits.starvation_ns, pause_ns);
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
      if (spec.tenants[i].policy.priority == Priority::kHigh) continue;
      EXPECT_LE(gpu.Result(i).longest_gap_ns, bound_ns + LongestNs(spec.tenants[i])) << i;
    }
  }
}

// Between trust domains a pause is a turn: its quantum, the end of what is in flight, and the next one's beginning.
TEST(RandomWorkloads, NobodyStarvesBetweenDomainsForLongerThanPromised) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    GpuSpec spec = Starving(&random);
    uint64_t starving = 0;
    for (TenantSpec& it : spec.tenants) {
      // Each class in a domain of its own, so that only turns rescue.
      it.domain = static_cast<uint32_t>(arbiter::Index(it.policy.priority));
      starving += it.policy.priority == Priority::kHigh ? 0 : 1;
    }
    Gpu gpu(spec, seed);
    gpu.RunTo(10 * kSecond);
    const uint64_t longest_ns =
        LongestNs(spec, {Priority::kHigh, Priority::kNormal, Priority::kLow});
    const uint64_t pause_ns =
        spec.turns.quantum_ns + 2 * (spec.turns.in_flight_ns + longest_ns) + 2 * spec.reaction_ns;
    const uint64_t bound_ns = StarvationBoundNs(starving, spec.turns.starvation_ns, pause_ns);
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
      if (spec.tenants[i].policy.priority == Priority::kHigh) continue;
      EXPECT_LE(gpu.Result(i).longest_gap_ns, bound_ns + longest_ns) << i;
    }
  }
}

// Two to four namespaces that always want, in two to four trust domains. As by the policy's trustDomain: each has one
// of its own, shares one with others, or has one for each of its pods.
GpuSpec Domains(Random* random) {
  GpuSpec spec;
  const uint64_t spaces = random->Between(2, 4);
  uint32_t domains = 1;  // the first may be shared
  spec.spaces.clear();
  for (uint32_t space = 0; space < spaces; ++space) {
    spec.spaces.push_back({.weight = static_cast<uint32_t>(random->Between(50, 400))});
    // The last one sees to it that there are two.
    const bool shares = random->Below(2) == 0 && (space + 1 != spaces || domains != 1);
    const uint64_t pods = random->Between(1, 3);
    const bool splits = !shares && domains + pods <= 4 && random->Below(2) == 0;
    const bool owns = !shares && !splits && domains < 4;
    if (owns) ++domains;
    for (uint64_t left = pods; left != 0; --left) {
      if (splits) ++domains;
      TenantSpec tenant;
      tenant.space = space;
      tenant.domain = splits || owns ? domains - 1 : 0;
      tenant.policy.weight = static_cast<uint32_t>(random->Between(50, 200));
      tenant.kernel_ns = random->Between(50 * kUs, 4 * kMs);
      tenant.jitter_permille = static_cast<uint32_t>(random->Below(300));
      spec.tenants.push_back(tenant);
    }
  }
  return spec;
}

TEST(RandomWorkloads, NamespacesShareByWeightWhateverTheirDomains) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const GpuSpec spec = Domains(&random);
    Gpu gpu(spec, seed);
    gpu.RunTo(500 * kMs);
    std::vector<double> shares(spec.spaces.size());
    const auto add = [&](double times) {
      for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
        shares[spec.tenants[i].space] += times * static_cast<double>(gpu.charged_ns(i));
      }
    };
    constexpr uint64_t kSpanNs = 2 * kSecond;
    add(-1);
    gpu.RunTo(gpu.now_ns() + kSpanNs);
    add(1);
    double weights = 0;
    double sum = 0;
    for (const auto& space : spec.spaces) weights += space.weight;
    for (const double share : shares) sum += share / kSpanNs;
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_NEAR(shares[i] / kSpanNs, sum * spec.spaces[i].weight / weights, 0.03) << i;
    }
    EXPECT_GE(sum, 0.95) << "what handing over costs";
  }
}

// In any span: its share of it and of the bucket, and what was in flight when the bucket ran empty.
void ExpectCeilingHeld(const std::vector<uint64_t>& used_ns, uint64_t step_ns, uint32_t permille,
                       uint64_t in_flight_ns) {
  constexpr uint64_t kBucketNs = 100 * kMs;
  for (size_t begin = 0; begin < used_ns.size(); ++begin) {
    for (size_t end = begin + 1; end < used_ns.size(); ++end) {
      const uint64_t allowed_ns = ((end - begin) * step_ns + kBucketNs) * permille / 1000;
      ASSERT_LE(used_ns[end] - used_ns[begin], allowed_ns + in_flight_ns)
          << "from step " << begin << " to " << end << " at " << permille << " permille";
    }
  }
}

void ExpectCeilingsHeld(const GpuSpec& spec, uint64_t seed) {
  constexpr uint64_t kStepNs = 10 * kMs;
  constexpr size_t kSteps = 200;
  Gpu gpu(spec, seed);
  std::vector<std::vector<uint64_t>> of_tenants(spec.tenants.size());
  std::vector<std::vector<uint64_t>> of_spaces(spec.spaces.size());
  for (size_t step = 0; step <= kSteps; ++step) {
    gpu.RunTo(step * kStepNs);
    for (auto& of_space : of_spaces) of_space.push_back(0);
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
      of_tenants[i].push_back(gpu.charged_ns(i));
      of_spaces[spec.tenants[i].space].back() += gpu.charged_ns(i);
    }
  }
  const uint64_t in_flight_ns = std::max(
      spec.limits.order_ns, LongestNs(spec, {Priority::kHigh, Priority::kNormal, Priority::kLow}));
  for (size_t i = 0; i < of_tenants.size(); ++i) {
    SCOPED_TRACE("tenant " + std::to_string(i));
    const uint32_t permille = spec.tenants[i].policy.ceiling_permille;
    ExpectCeilingHeld(of_tenants[i], kStepNs, permille, in_flight_ns);
  }
  for (size_t i = 0; i < of_spaces.size(); ++i) {
    SCOPED_TRACE("namespace " + std::to_string(i));
    ExpectCeilingHeld(of_spaces[i], kStepNs, spec.spaces[i].ceiling_permille, in_flight_ns);
  }
}

TEST(RandomWorkloads, CeilingsAreNeverExceeded) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    GpuSpec spec = Domains(&random);
    for (auto& space : spec.spaces) {
      if (random.Below(2) == 0) space.ceiling_permille = 10 * random.Between(5, 100);
    }
    for (TenantSpec& it : spec.tenants) {
      if (random.Below(2) == 0) it.policy.ceiling_permille = 10 * random.Between(5, 100);
      it.policy.priority = arbiter::kAllPriorities[random.Below(3)];
    }
    ExpectCeilingsHeld(spec, seed);
    SCOPED_TRACE("in one domain");
    for (TenantSpec& it : spec.tenants) it.domain = 0;
    ExpectCeilingsHeld(spec, seed);
  }
}

}  // namespace
}  // namespace gpuloom::simulator
