// SPDX-License-Identifier: Apache-2.0
// Executors of several trust domains on one device, real ones: who is charged how much of it, and that nobody is kept from
// going on. Kernels rest in real time, so only shares are looked at, never durations.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

class TurnsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(stack_.Ended()) << "a process was left"; }

  Allocation Allocate(const std::string& pod, control::ShareTerms shares) {
    AllocationSpec spec{.pod = pod, .domain = "domain-" + pod};
    spec.shares = shares;
    return stack_.Allocate(spec);
  }
  Process Start(const Allocation& allocation) {
    Process tenant = stack_.Tenant(allocation, {GPULOOM_RESTING_TENANT});
    EXPECT_TRUE(tenant.ReadLine("ready")) << tenant.output();
    return tenant;
  }
  static void Keep(std::vector<Process*> tenants, const char* seconds) {
    for (Process* tenant : tenants) tenant->WriteLine(seconds);
    for (Process* tenant : tenants) EXPECT_TRUE(tenant->ReadLine("done")) << tenant->output();
  }
  // Also what the program did before.
  double End(const Allocation& allocation, Process* tenant) {
    tenant->CloseInput();
    EXPECT_EQ(tenant->ExitStatus(), 0) << tenant->output();
    EXPECT_TRUE(stack_.BackToNothing(allocation));
    return static_cast<double>(stack_.State(allocation).time.compute_ns);
  }

  Stack stack_;
};

TEST_F(TurnsTest, DomainsShareByWeight) {
  double light_ns = 0, heavy_ns = 0, took_ns = 0;
  int round = 0;
  // In all rounds so far: a machine that stands still makes what runs then dearer, but that is not always the same one.
  EXPECT_TRUE(Eventually([&] {
    const std::string name = std::to_string(++round);
    const Allocation light = Allocate("light" + name, {0, 100, 0, 0, 0});
    const Allocation heavy = Allocate("heavy" + name, {0, 300, 0, 0, 0});
    Process of_light = Start(light);
    Process of_heavy = Start(heavy);
    const auto begin = std::chrono::steady_clock::now();
    Keep({&of_light, &of_heavy}, "3");
    light_ns += End(light, &of_light);
    heavy_ns += End(heavy, &of_heavy);
    took_ns +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    // Without weights it is 1; a busy machine takes its part.
    return heavy_ns > 1.5 * light_ns && heavy_ns < 8 * light_ns &&
           // One after the other, and without long gaps between.
           light_ns + heavy_ns > 1e9 && light_ns + heavy_ns < 1.3 * took_ns;
  })) << light_ns
      << " " << heavy_ns << " " << took_ns;
}

TEST_F(TurnsTest, AHigherClassLeavesTheLowerOneItsGaps) {
  double low_ns = 0, high_ns = 0;
  int round = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::string name = std::to_string(++round);
    const Allocation low = Allocate("low" + name, {0, 0, 3, 0, 0});
    const Allocation high = Allocate("high" + name, {0, 0, 1, 0, 0});
    Process of_low = Start(low);
    Process of_high = Start(high);
    Keep({&of_low, &of_high}, "1");
    low_ns += End(low, &of_low);
    high_ns += End(high, &of_high);
    return high_ns > 2 * low_ns;
  })) << low_ns
      << " " << high_ns;
}

TEST_F(TurnsTest, ADomainGoesOnWhenTheOtherDies) {
  const Allocation a = Allocate("a", {});
  const Allocation b = Allocate("b", {});
  Process survivor = Start(a);
  Process victim = Start(b);
  victim.WriteLine("600");
  for (int i = 0; i < 3; ++i) Keep({&survivor}, "0.1");
  ASSERT_EQ(kill(stack_.ExecutorOf("domain-b"), SIGKILL), 0);
  Keep({&survivor}, "0.1");
  victim.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(b));
  Process again = Start(b);
  Keep({&survivor, &again}, "0.1");
  End(b, &again);
  End(a, &survivor);
}

}  // namespace
}  // namespace gpuloom::testing
