// SPDX-License-Identifier: Apache-2.0
// The properties that the deciding core promises (docs/design/sharing-time.md), over random workloads, on a
// model of a device with a simulated clock. Every seed is printed; nothing depends on the machine.
#include "agent/simulator/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace gpuloom::simulator {
namespace {

using arbiter::AllocationPolicy;
using arbiter::NamespacePolicy;
using arbiter::Priority;

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

AllocationPolicy Weighs(uint32_t weight, Priority priority = Priority::kNormal) {
  return {.weight = weight, .slots = 1, .priority = priority};
}

TenantSpec Always(uint64_t kernel_ns, uint32_t weight = 100,
                  Priority priority = Priority::kNormal) {
  TenantSpec tenant;
  tenant.kernel_ns = kernel_ns;
  tenant.policy = Weighs(weight, priority);
  return tenant;
}

// What each was charged of the device's time in the span, in permille of it.
std::vector<double> Shares(Gpu* gpu, size_t tenants, uint64_t span_ns) {
  std::vector<double> shares;
  for (uint32_t i = 0; i < tenants; ++i) shares.push_back(-double(gpu->charged_ns(i)));
  gpu->RunTo(gpu->now_ns() + span_ns);
  for (uint32_t i = 0; i < tenants; ++i) {
    shares[i] = (shares[i] + double(gpu->charged_ns(i))) * 1000 / double(span_ns);
  }
  return shares;
}

void ExpectSharesByWeight(const GpuSpec& spec, uint64_t seed, double tolerance_permille = 30) {
  Gpu gpu(spec, seed);
  gpu.RunTo(200 * kMs);
  double sum = 0;
  for (const TenantSpec& tenant : spec.tenants) sum += tenant.policy.weight;
  for (int window = 0; window < 3; ++window) {
    const auto shares = Shares(&gpu, spec.tenants.size(), kSecond);
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_NEAR(shares[i], 1000 * spec.tenants[i].policy.weight / sum, tolerance_permille)
          << "tenant " << i << " of " << shares.size() << ", window " << window;
    }
  }
}

TEST(Sharing, ShortAndLongKernelsGetWhatTheirWeightsSay) {
  for (const auto& [first, second] : {std::pair{1, 1}, {1, 3}, {10, 90}}) {
    SCOPED_TRACE(std::to_string(first) + ":" + std::to_string(second));
    ExpectSharesByWeight({.tenants = {Always(50 * kUs, 10 * first), Always(5 * kMs, 10 * second)}},
                         1);
    ExpectSharesByWeight({.tenants = {Always(5 * kMs, 10 * first), Always(50 * kUs, 10 * second)}},
                         1);
  }
}

TEST(Sharing, ManyStreamsGainNothing) {
  GpuSpec spec{.tenants = {Always(100 * kUs), Always(100 * kUs), Always(100 * kUs)}};
  spec.tenants[1].streams = 16;
  ExpectSharesByWeight(spec, 1);
}

TEST(Sharing, RandomTenantsThatAlwaysWantGetWhatTheirWeightsSay) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    GpuSpec spec;
    for (uint64_t i = 2 + random.Below(6); i != 0; --i) {
      spec.tenants.push_back(Always(random.Between(20 * kUs, 4 * kMs), random.Between(50, 200)));
      spec.tenants.back().jitter_permille = random.Below(500);
    }
    ExpectSharesByWeight(spec, seed);
  }
}

TEST(Sharing, OfFortyEqualTenantsNobodyIsLucky) {
  GpuSpec spec;
  for (int i = 0; i < 40; ++i) spec.tenants.push_back(Always(i % 2 == 0 ? 50 * kUs : 300 * kUs));
  Gpu gpu(spec, 1);
  gpu.RunTo(200 * kMs);
  const auto shares = Shares(&gpu, 40, kSecond);
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  EXPECT_LE(*most, 1.1 * *least);
  EXPECT_GE(std::accumulate(shares.begin(), shares.end(), 0.0), 990);
}

TEST(Sharing, NamespacesShareFirstWhateverTheyHold) {
  GpuSpec spec{.spaces = {NamespacePolicy{.weight = 300}, NamespacePolicy{.weight = 100}}};
  spec.tenants.push_back(Always(200 * kUs));
  for (int i = 0; i < 5; ++i) {
    spec.tenants.push_back(Always(200 * kUs, i == 0 ? 400 : 100));
    spec.tenants.back().space = 1;
  }
  Gpu gpu(spec, 1);
  gpu.RunTo(200 * kMs);
  const auto shares = Shares(&gpu, 6, kSecond);
  EXPECT_NEAR(shares[0], 750, 30);
  EXPECT_NEAR(shares[1], 125, 30);
  for (int i = 2; i < 6; ++i) EXPECT_NEAR(shares[i], 31.25, 15);
}

TEST(Sharing, NarrowKernelsRunSideBySide) {
  GpuSpec spec;
  for (int i = 0; i < 4; ++i) {
    spec.tenants.push_back(Always(100 * kUs));
    spec.tenants.back().width_permille = 250;
  }
  Gpu gpu(spec, 1);
  gpu.RunTo(kSecond);
  for (uint32_t i = 0; i < 4; ++i) {
    // As many as alone: sharing does not make them wait for each other.
    EXPECT_GE(gpu.Result(i).kernels, 9'500u);
    EXPECT_NEAR(double(gpu.charged_ns(i)) / kSecond, 0.25, 0.01);
  }
}

TEST(Sharing, NothingIsWastedWhileSomebodyWants) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed * 77);
    GpuSpec spec;
    for (uint64_t i = 2 + random.Below(10); i != 0; --i) {
      const auto priority = arbiter::kAllPriorities[random.Below(3)];
      // One after the other: compilers evaluate arguments in different orders.
      const uint64_t kernel_ns = random.Between(10 * kUs, 3 * kMs);
      const uint64_t weight = random.Between(1, 1000);
      spec.tenants.push_back(Always(kernel_ns, static_cast<uint32_t>(weight), priority));
      TenantSpec& tenant = spec.tenants.back();
      tenant.width_permille = random.Between(10, 1000);
      tenant.streams = random.Between(1, 4);
      if (random.Below(2) == 0) tenant.request_gap_ns = random.Between(kMs, 20 * kMs);
      tenant.request_kernels = random.Between(1, 20);
      if (random.Below(2) == 0) tenant.on_ns = tenant.off_ns = random.Between(5 * kMs, 50 * kMs);
    }
    Gpu gpu(spec, seed);
    gpu.RunTo(kSecond);
    // Beside a higher class all others have 100 µs in flight together, with which a narrow kernel that has just ended may leave
    // the device idle.
    EXPECT_LE(gpu.wasted_ns(), kSecond / 40) << "idle with queued work";
    uint64_t sum_ns = gpu.meter().remainder_ns();
    for (uint32_t i = 0; i < spec.tenants.size(); ++i) sum_ns += gpu.charged_ns(i);
    EXPECT_EQ(sum_ns, gpu.meter().busy_ns()) << "every nanosecond is on somebody's account";
    EXPECT_EQ(gpu.busy_ns(), gpu.meter().busy_ns());
    EXPECT_EQ(gpu.meter().late_ns(), 0u);
  }
}

TEST(Sharing, SharingCostsNothingOfTheDevicesTime) {
  GpuSpec spec{.tenants = {Always(50 * kUs), Always(5 * kMs), Always(300 * kUs, 300)}};
  Gpu governed(spec, 1);
  governed.RunTo(kSecond);
  spec.governed = false;
  Gpu ungoverned(spec, 1);
  ungoverned.RunTo(kSecond);
  EXPECT_GE(double(governed.busy_ns()), 0.98 * double(ungoverned.busy_ns()));
  // And without it the long kernels take nearly everything.
  EXPECT_GE(double(ungoverned.charged_ns(1)), 0.8 * kSecond);
}

TEST(Sharing, OneAloneHasNoBoundAndWastesNothing) {
  Gpu gpu({.tenants = {Always(10 * kUs)}}, 1);
  gpu.RunTo(kSecond);
  EXPECT_GE(gpu.Result(0).kernels, 99'900u);
  EXPECT_EQ(gpu.wasted_ns(), 0u);
}

// Priority.

GpuSpec HighBesideLow(uint64_t low_kernel_ns) {
  TenantSpec high = Always(100 * kUs, 100, Priority::kHigh);
  high.request_gap_ns = 8 * kMs;  // half of what it could take
  high.request_kernels = 40;
  return {.tenants = {high, Always(low_kernel_ns, 100, Priority::kLow),
                      Always(low_kernel_ns, 100, Priority::kLow)}};
}

TEST(Sharing, HighWaitsForOneKernelAndTheBound) {
  for (const uint64_t low_kernel_ns : {50 * kUs, 500 * kUs, 5 * kMs}) {
    SCOPED_TRACE("low kernels of " + std::to_string(low_kernel_ns / kUs) + " us");
    GpuSpec spec = HighBesideLow(low_kernel_ns);
    // So far apart that no request waits for another; within what counts as still there.
    spec.tenants[0].request_kernels = 1;
    Gpu gpu(spec, 1);
    gpu.RunTo(2 * kSecond);
    const TenantResult high = gpu.Result(0);
    ASSERT_GE(high.latency_ns.size(), 100u);
    // Its own kernel, one before it of its own class, and what was at the device.
    EXPECT_LE(high.latency_ns.back(), low_kernel_ns + spec.limits.lower_in_flight_ns + 250 * kUs);
    // Low ones get the gaps.
    EXPECT_GE(gpu.charged_ns(1) + gpu.charged_ns(2), kSecond * 17 / 10);
  }
}

TEST(Sharing, LowInFlightIsBoundedBesideHigh) {
  Gpu gpu(HighBesideLow(40 * kUs), 1);
  gpu.RunTo(kSecond);
  // Before the first request nothing bounds them, and it begins after some ms.
  GpuSpec spec = HighBesideLow(40 * kUs);
  spec.tenants[0].request_gap_ns = 0;  // always there
  spec.tenants[1].begins_ns = spec.tenants[2].begins_ns = 10 * kMs;
  Gpu always(spec, 1);
  always.RunTo(kSecond);
  // One piece more than the bound; the first is not predicted yet and counts as 1 ms.
  EXPECT_LE(always.most_lower_in_flight_ns(),
            arbiter::LaunchPredictor::kUnknownNs + spec.limits.lower_in_flight_ns);
}

TEST(Sharing, LowIsNotStarved) {
  GpuSpec spec{.tenants = {Always(200 * kUs, 1000, Priority::kHigh), Always(200 * kUs),
                           Always(200 * kUs, 1, Priority::kLow),
                           Always(200 * kUs, 1, Priority::kLow)}};
  Gpu gpu(spec, 1);
  gpu.RunTo(5 * kSecond);
  for (uint32_t i = 1; i < 4; ++i) {
    // Two in the class: each has its turn within the bound, but for what runs before it.
    EXPECT_LE(gpu.Result(i).longest_gap_ns, spec.limits.starvation_ns * 3 / 2) << i;
  }
  EXPECT_GE(double(gpu.charged_ns(0)), 0.9 * 5 * kSecond);
}

TEST(Sharing, LowStarvesWhereThePolicySaysSo) {
  GpuSpec spec{
      .tenants = {Always(200 * kUs, 1, Priority::kHigh), Always(200 * kUs, 1000, Priority::kLow)}};
  spec.tenants[1].begins_ns = 50 * kMs;
  spec.limits.starvation_ns = 0;
  Gpu gpu(spec, 1);
  gpu.RunTo(2 * kSecond);
  // One order goes to the device, where high never lets it begin.
  EXPECT_LE(gpu.charged_ns(1), kMs);
}

// What one low tenant's longest wait is behind a high one that always has work, where the policy says so.
uint64_t LongestGapNs(std::optional<uint64_t> of_low, uint32_t domain_of_low) {
  GpuSpec spec{
      .tenants = {Always(200 * kUs, 1, Priority::kHigh), Always(200 * kUs, 1000, Priority::kLow)}};
  spec.tenants[1].policy.starvation_ns = of_low;
  spec.tenants[1].domain = domain_of_low;
  Gpu gpu(spec, 1);
  gpu.RunTo(5 * kSecond);
  return gpu.Result(1).longest_gap_ns;
}

TEST(Sharing, LowIsRescuedWhenThePolicySaysSo) {
  EXPECT_LE(LongestGapNs(20 * kMs, 0), 30 * kMs);
  EXPECT_LE(LongestGapNs({}, 0), 150 * kMs);
  EXPECT_GE(LongestGapNs({}, 0), 90 * kMs) << "high goes first";
  EXPECT_LE(LongestGapNs(kSecond, 0), 1500 * kMs);
  EXPECT_GE(LongestGapNs(kSecond, 0), 900 * kMs);
  EXPECT_GE(LongestGapNs(0, 0), 4 * kSecond);
}

// The shortest wait of a class is the class's, and changes live.
TEST(Sharing, WhoMayStarveDoesNotLengthenOthersWait) {
  GpuSpec spec{.tenants = {Always(200 * kUs, 1, Priority::kHigh),
                           Always(200 * kUs, 1, Priority::kLow),
                           Always(200 * kUs, 1, Priority::kLow)}};
  spec.tenants[1].policy.starvation_ns = 0;
  Gpu gpu(spec, 1);
  gpu.RunTo(5 * kSecond);
  EXPECT_LE(gpu.Result(2).longest_gap_ns, spec.limits.starvation_ns * 3 / 2);
  spec.tenants[2].policy.starvation_ns = 0;
  gpu.SetPolicy(2, spec.tenants[2].policy);
  gpu.RunTo(8 * kSecond);
  EXPECT_GE(gpu.Result(2).longest_gap_ns, 2 * kSecond);
}

// Ceilings.

TEST(Sharing, CeilingsHoldOnAnIdleDevice) {
  for (const uint32_t permille : {50u, 250u, 700u}) {
    SCOPED_TRACE(permille);
    GpuSpec spec{.tenants = {Always(300 * kUs)}};
    spec.tenants[0].policy.ceiling_permille = permille;
    Gpu gpu(spec, 1);
    gpu.RunTo(kSecond);
    const auto shares = Shares(&gpu, 1, kSecond);
    EXPECT_NEAR(shares[0], permille, 5);
    const TenantResult result = gpu.Result(0);
    // But for what it had saved; and it may not submit either while the last of it runs.
    EXPECT_GE(double(result.waits.throttled_ns), 2e9 * (1000 - permille) / 1000 - 1e8);
    EXPECT_GE(result.waits.queue_ns, result.waits.throttled_ns);
  }
}

TEST(Sharing, ANamespacesCeilingIsOfAllItsClassesAndOthersGetTheRest) {
  GpuSpec spec{.spaces = {{.weight = 900, .ceiling_permille = 200}, {.weight = 100}}};
  spec.tenants = {Always(200 * kUs, 100, Priority::kHigh), Always(200 * kUs), Always(40 * kUs)};
  spec.tenants[2].space = 1;
  Gpu gpu(spec, 1);
  gpu.RunTo(kSecond);
  const auto shares = Shares(&gpu, 3, kSecond);
  EXPECT_NEAR(shares[0] + shares[1], 200, 10);
  EXPECT_NEAR(shares[2], 800, 20);
}

// Coming and going.

TEST(Sharing, ANewcomerNeitherOwesNorIsOwed) {
  GpuSpec spec{.tenants = {Always(100 * kUs), Always(100 * kUs)}};
  spec.tenants[1].begins_ns = 3 * kSecond;
  Gpu gpu(spec, 1);
  gpu.RunTo(3 * kSecond);
  const auto shares = Shares(&gpu, 2, 200 * kMs);
  EXPECT_NEAR(shares[0], 500, 30);
  EXPECT_NEAR(shares[1], 500, 30);
}

TEST(Sharing, AChangeOfPolicyHoldsAtOnce) {
  Gpu gpu({.tenants = {Always(100 * kUs), Always(3 * kMs)}}, 1);
  gpu.RunTo(kSecond);
  gpu.SetPolicy(0, Weighs(300));
  auto shares = Shares(&gpu, 2, kSecond);
  EXPECT_NEAR(shares[0], 750, 30);
  gpu.SetPolicy(1, Weighs(100, Priority::kHigh));
  shares = Shares(&gpu, 2, kSecond);
  EXPECT_GE(shares[1], 850);
  gpu.SetPolicy(1, Weighs(300));
  shares = Shares(&gpu, 2, kSecond);
  EXPECT_NEAR(shares[0], 500, 30);
}

TEST(Sharing, BurstsDoNotMultiplyRequests) {
  TenantSpec tenant = Always(10 * kUs);
  tenant.request_gap_ns = 100 * kMs;
  tenant.on_ns = tenant.off_ns = kMs;
  Gpu gpu({.tenants = {tenant}}, 1);
  gpu.RunTo(20 * kSecond);
  // One in 100 ms, of which about half come while it is off.
  EXPECT_GE(gpu.Result(0).requests, 50u);
  EXPECT_LE(gpu.Result(0).requests, 200u);
}

TEST(Sharing, UnpredictableKernelsGainNothing) {
  // Alternating lengths, so that every prediction is wrong.
  GpuSpec spec{.tenants = {Always(kMs), Always(kMs)}};
  spec.tenants[0].jitter_permille = 990;
  ExpectSharesByWeight(spec, 3);
}

// Between domains.

TEST(Turns, DomainsGetWhatTheirNamespacesWeigh) {
  for (const auto& [first, second] : {std::pair{1, 1}, {1, 3}, {10, 90}}) {
    SCOPED_TRACE(std::to_string(first) + ":" + std::to_string(second));
    GpuSpec spec{.spaces = {{.weight = 10u * first}, {.weight = 10u * second}}};
    spec.tenants = {Always(50 * kUs), Always(5 * kMs)};
    spec.tenants[1].space = spec.tenants[1].domain = 1;
    Gpu gpu(spec, 1);
    gpu.RunTo(300 * kMs);
    const auto shares = Shares(&gpu, 2, 2 * kSecond);
    EXPECT_NEAR(shares[0], 1000.0 * first / (first + second), 40);
    EXPECT_GE(shares[0] + shares[1], 970) << "what handing over costs";
  }
}

TEST(Turns, ANamespaceOfManyDomainsGetsNoMore) {
  GpuSpec spec{.spaces = {{}, {}}};
  spec.tenants = {Always(200 * kUs)};
  for (uint32_t i = 1; i <= 4; ++i) {
    spec.tenants.push_back(Always(200 * kUs));
    spec.tenants.back().space = 1;
    spec.tenants.back().domain = i;
  }
  Gpu gpu(spec, 1);
  gpu.RunTo(300 * kMs);
  const auto shares = Shares(&gpu, 5, 2 * kSecond);
  EXPECT_NEAR(shares[0], 500, 40);
  for (int i = 1; i <= 4; ++i) EXPECT_NEAR(shares[i], 125, 25);
}

TEST(Turns, HighInOneDomainGoesBeforeLowInAnother) {
  GpuSpec spec = HighBesideLow(200 * kUs);
  spec.tenants[0].request_kernels = 1;
  spec.tenants[1].domain = spec.tenants[2].domain = 1;
  Gpu gpu(spec, 1);
  gpu.RunTo(2 * kSecond);
  const TenantResult high = gpu.Result(0);
  ASSERT_GE(high.latency_ns.size(), 100u);
  const size_t p99 = high.latency_ns.size() * 99 / 100;
  EXPECT_LE(high.latency_ns[p99], 200 * kUs + spec.turns.lower_in_flight_ns + 350 * kUs);
  EXPECT_GE(gpu.charged_ns(1) + gpu.charged_ns(2), kSecond * 3 / 2);
}

// A turn is a pause of 5 to 10 ms: more than one in 100 ms there is not, whatever the policy says.
TEST(Turns, LowIsNotStarved) {
  EXPECT_LE(LongestGapNs(20 * kMs, 1), 120 * kMs);
  EXPECT_LE(LongestGapNs(500 * kMs, 1), 600 * kMs);
  EXPECT_GE(LongestGapNs(500 * kMs, 1), 450 * kMs);
  EXPECT_LE(LongestGapNs({}, 1), 150 * kMs);
  EXPECT_GE(LongestGapNs({}, 1), 80 * kMs) << "high goes first";
  EXPECT_GE(LongestGapNs(kSecond, 1), 900 * kMs);
  EXPECT_GE(LongestGapNs(0, 1), 4 * kSecond);
}

TEST(Turns, OneThatNeverStopsLosesItsExecutor) {
  GpuSpec spec{.spaces = {{.weight = 99}, {.weight = 1}}};
  spec.tenants = {Always(200 * kUs), Always(200 * kUs)};
  spec.tenants[1].space = spec.tenants[1].domain = 1;
  spec.turns.overrun_end_ns = 2 * kSecond;
  Gpu gpu(spec, 1);
  gpu.RunTo(kSecond);
  gpu.MakeDeaf(1, true);
  const auto meanwhile = Shares(&gpu, 2, 2 * kSecond);
  EXPECT_GE(meanwhile[1], 300) << "nothing but its end stops it";
  gpu.RunTo(6 * kSecond);
  EXPECT_EQ(gpu.executors_ended(), 1u);
  const auto shares = Shares(&gpu, 2, 2 * kSecond);
  EXPECT_GE(shares[0], 950);
}

TEST(Turns, OneThatDoesNotStopHoldsNobodyUp) {
  GpuSpec spec{.spaces = {{}, {}}};
  spec.tenants = {Always(200 * kUs), Always(200 * kUs)};
  spec.tenants[1].space = spec.tenants[1].domain = 1;
  Gpu gpu(spec, 1);
  gpu.RunTo(kSecond);
  gpu.MakeDeaf(1, true);
  gpu.RunTo(2 * kSecond);
  EXPECT_GE(gpu.turns().overruns(arbiter::DomainId{1}), 1u);
  gpu.MakeDeaf(1, false);
  gpu.RunTo(2 * kSecond + 300 * kMs);
  // It has paid for all of it, and then it is as before.
  const auto shares = Shares(&gpu, 2, 2 * kSecond);
  EXPECT_GE(shares[0], 470);
  EXPECT_GE(shares[0] + shares[1], 970);
}

// Cost.

TEST(Sharing, ADecisionsCostGrowsWithTheLogarithmOfTheTenants) {
  const auto steps = [](uint32_t working, uint32_t idle) {
    GpuSpec spec;
    for (uint32_t i = 0; i < working + idle; ++i) {
      spec.tenants.push_back(Always(200 * kUs, 1 + i % 7));
      if (i >= working) spec.tenants.back().begins_ns = 1'000 * kSecond;
    }
    Gpu gpu(spec, 1);
    gpu.RunTo(kSecond / 2);
    return double(gpu.steps()) / double(gpu.decisions());
  };
  const double ten = steps(10, 0);
  const double hundred = steps(100, 0);
  const double thousand = steps(1000, 0);
  const double ten_of_many = steps(10, 990);
  std::printf(
      "steps a decision: 10 tenants %.1f, 100 tenants %.1f, 1,000 tenants %.1f, 10 and 990 idle "
      "%.1f\n",
      ten, hundred, thousand, ten_of_many);
  // The logarithms are as 1 to 2 to 3.
  EXPECT_LE(hundred, 2 * ten);
  EXPECT_LE(thousand, 3 * ten);
  EXPECT_LE(ten_of_many, 1.01 * ten);
}

TEST(Sharing, TheSameSeedGivesTheSame) {
  const auto run = [](uint64_t seed) {
    Gpu gpu(HighBesideLow(300 * kUs), seed);
    gpu.RunTo(kSecond);
    return std::tuple(gpu.charged_ns(0), gpu.charged_ns(1), gpu.Result(0).latency_ns);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace gpuloom::simulator
