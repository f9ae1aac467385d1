// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/cluster.h"

#include <gtest/gtest.h>

namespace gpuloom::simulator {
namespace {

TEST(Cluster, ThousandsOfTenantsOnHundredsOfGpus) {
  constexpr uint64_t kSpanNs = 60'000'000;
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
