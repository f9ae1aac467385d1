// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpuloom::simulator {
namespace {

using arbiter::Priority;

constexpr uint64_t kMs = 1'000'000;

// The longest of what RandomCluster draws, each a fifth longer than it was asked for.
constexpr uint64_t kLongestKernelNs = 2'400'000;
constexpr uint64_t kLongestRequestNs = 20 * 120'000;  // of a server

// Those that always want in each namespace of the class, so that there the namespaces compete.
bool Compete(const GpuSpec& spec) {
  std::vector<bool> wants(spec.spaces.size());
  for (const TenantSpec& it : spec.tenants) {
    if (it.policy.priority == Priority::kNormal && it.endless() && it.on_ns == 0) {
      wants[it.space] = true;
    }
  }
  return std::count(wants.begin(), wants.end(), true) == std::ssize(wants);
}

void ExpectSharesByWeight(const GpuSpec& spec, const Gpu& gpu) {
  std::vector<double> used(spec.spaces.size());
  double all = 0;
  double weights = 0;
  for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
    if (spec.tenants[i].policy.priority != Priority::kNormal) continue;
    used[spec.tenants[i].space] += static_cast<double>(gpu.charged_ns(i));
    all += static_cast<double>(gpu.charged_ns(i));
  }
  for (const auto& space : spec.spaces) weights += space.weight;
  for (size_t i = 0; i < used.size(); ++i) {
    EXPECT_NEAR(used[i] / all, spec.spaces[i].weight / weights, 0.03) << "namespace " << i;
  }
}

// Pauses are turns if the classes are in different trust domains, and divided by those that starve
// (docs/design/sharing-time.md).
void ExpectNoClassStarves(const GpuSpec& spec, const Gpu& gpu) {
  constexpr uint64_t kPauseNs = 5 * kMs + 2 * (kMs + kLongestKernelNs);
  uint64_t lower = 0;
  for (const TenantSpec& it : spec.tenants) lower += it.policy.priority == Priority::kHigh ? 0 : 1;
  const uint64_t bound_ns = std::max(spec.turns.starvation_ns + 2 * kPauseNs,
                                     lower * arbiter::StarvationGuard::kPauseShare * kPauseNs);
  for (const Priority priority : {Priority::kNormal, Priority::kLow}) {
    EXPECT_LE(gpu.longest_gap_ns(priority), bound_ns + kLongestKernelNs)
        << arbiter::Index(priority);
  }
}

TEST(Cluster, SharesDelaysAndGapsAreAsPromisedOnEachGpu) {
  constexpr uint64_t kSpanNs = 3'000 * kMs;
  constexpr uint64_t kSeed = 12;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  uint32_t compete = 0;
  uint32_t several_domains = 0;
  std::vector<uint64_t> high_ns;
  uint64_t seed = kSeed;
  for (const GpuSpec& spec : RandomCluster(2'000, 200, kSeed)) {
    SCOPED_TRACE("GPU " + std::to_string(seed - kSeed));
    Gpu gpu(spec, seed++);
    gpu.RunTo(kSpanNs);
    if (Compete(spec)) {
      ++compete;
      ExpectSharesByWeight(spec, gpu);
    }
    ExpectNoClassStarves(spec, gpu);
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) {
      if (spec.tenants[i].policy.priority != Priority::kHigh) continue;
      high_ns.insert(high_ns.end(), gpu.latencies(i).begin(), gpu.latencies(i).end());
    }
    several_domains += spec.tenants.back().domain != spec.tenants.front().domain ? 1 : 0;
  }
  EXPECT_GE(compete, 20u);
  EXPECT_GE(several_domains, 50u);
  ASSERT_GE(high_ns.size(), 10'000u);
  std::sort(high_ns.begin(), high_ns.end());
  // Itself, another server's request before it, what runs, and what is in flight of a turn.
  EXPECT_LE(high_ns[high_ns.size() * 99 / 100],
            2 * kLongestRequestNs + kLongestKernelNs + arbiter::TurnLimits{}.in_flight_ns);
  std::printf("%zu requests of high: p99 %.3f ms; namespaces compete on %u GPUs\n", high_ns.size(),
              static_cast<double>(high_ns[high_ns.size() * 99 / 100]) / kMs, compete);
}

TEST(Cluster, ThousandsOfTenantsOnHundredsOfGpus) {
  constexpr uint64_t kSpanNs = 1'000'000'000;
  constexpr uint64_t kSeed = 12;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const auto gpus = RandomCluster(2'000, 200, kSeed);
  const ClusterResult result = RunCluster(gpus, kSpanNs, kSeed);
  EXPECT_EQ(result.charged_ns + result.remainder_ns, result.busy_ns);
  // Every device has somebody who always wants.
  EXPECT_GE(result.busy_ns, kSpanNs * 200 * 9 / 10);
  EXPECT_LE(result.wasted_ns, kSpanNs * 200 / 10);
  for (const ClassResult& its : result.classes) EXPECT_GT(its.kernels, 0u);
  EXPECT_EQ(RunCluster(gpus, kSpanNs, kSeed).charged_ns, result.charged_ns) << "deterministic";
}

Arguments Parsed(const std::vector<std::string>& words) {
  Arguments arguments;
  std::string error;
  EXPECT_TRUE(Parse(words, &arguments, &error)) << error;
  return arguments;
}

TEST(Cluster, AReportNamesTenantsAndTheirShares) {
  const std::string text =
      Report(Parsed({"--tenant", "name=a,weight=100,kernel=50us,namespace=x", "--tenant",
                     "name=b,weight=300,kernel=1ms,namespace=x", "--seconds", "0.5"}));
  EXPECT_NE(text.find("\na "), std::string::npos) << text;
  EXPECT_NE(text.find("\nb "), std::string::npos) << text;
  EXPECT_NE(text.find("device busy"), std::string::npos) << text;
}

TEST(Cluster, ArgumentsSayWhatTheyMean) {
  const Arguments arguments =
      Parsed({"--tenant",
              "name=a,namespace=x,domain=d,namespace-weight=7,weight=9,slots=2,priority=low,max=25,"
              "kernel=1.5ms,jitter=10,width=50,streams=3,requests=2ms,pieces=4,on=1s,off=2s",
              "--seed", "3", "--gpus", "2", "--seconds", "0.25", "--ungoverned"});
  ASSERT_EQ(arguments.gpu.tenants.size(), 1u);
  const TenantSpec& tenant = arguments.gpu.tenants[0];
  EXPECT_EQ(arguments.spaces, std::vector<std::string>{"x"});
  EXPECT_EQ(arguments.gpu.spaces[0].weight, 7u);
  EXPECT_EQ(tenant.policy.weight, 9u);
  EXPECT_EQ(tenant.policy.slots, 2u);
  EXPECT_EQ(tenant.policy.priority, arbiter::Priority::kLow);
  EXPECT_EQ(tenant.policy.ceiling_permille, 250u);
  EXPECT_EQ(tenant.kernel_ns, 1'500'000u);
  EXPECT_EQ(tenant.jitter_permille, 100u);
  EXPECT_EQ(tenant.width_permille, 500u);
  EXPECT_EQ(tenant.streams, 3u);
  EXPECT_EQ(tenant.request_gap_ns, 2'000'000u);
  EXPECT_EQ(tenant.request_kernels, 4u);
  EXPECT_EQ(tenant.on_ns, 1'000'000'000u);
  EXPECT_EQ(tenant.off_ns, 2'000'000'000u);
  EXPECT_EQ(arguments.gpus, 2u);
  EXPECT_EQ(arguments.span_ns, 250'000'000u);
  EXPECT_FALSE(arguments.gpu.governed);
}

TEST(Cluster, AnySeedOf64BitsIsTaken) {
  EXPECT_EQ(Parsed({"--random", "1", "--seed", "18446744073709551615"}).seed, UINT64_MAX);
  EXPECT_EQ(Parsed({"--random", "1", "--seed", "1234567890123"}).seed, 1234567890123u);
}

TEST(Cluster, WrongArgumentsAreRefusedByName) {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{},
                                             {"--tenant"},
                                             {"--tenant", "weight=0"},
                                             {"--tenant", "weight=1001"},
                                             {"--tenant", "weigth=1"},
                                             {"--tenant", "kernel=5"},
                                             {"--tenant", "priority=highest"},
                                             {"--random", "x"},
                                             {"--random", "10", "--tenant", "name=a"},
                                             {"--seconds", "0", "--random", "1"},
                                             {"--seed", "18446744073709551616", "--random", "1"},
                                             {"--seed", "-1", "--random", "1"},
                                             {"--seed", "", "--random", "1"},
                                             {"--nonsense", "1"}}) {
    Arguments arguments;
    std::string error;
    EXPECT_FALSE(Parse(words, &arguments, &error)) << (words.empty() ? "" : words.back());
    EXPECT_FALSE(error.empty());
  }
}

}  // namespace
}  // namespace gpuloom::simulator
