// SPDX-License-Identifier: Apache-2.0
// From the policy's file to what the device does, for programs that run while the file changes and notice nothing else of it.
// softgpu's time is real time, so shares are compared with wide bounds, and as often as it takes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_tenant_fixture.h"

namespace gpuloom {
namespace {

class LivePolicy : public AgentTenant {
 protected:
  struct Shares {
    double first, second;  // each of the GPU's time
    double PartOfFirst() const { return first / (first + second); }
  };
  // Of the second that follows.
  static Shares Measure(const FakeContainer& first, const FakeContainer& second) {
    const auto used_ns = [](const FakeContainer& container) {
      const auto state = AskScheduler(container);
      return state.has_value() ? static_cast<double>(state->time.compute_ns) : 0;
    };
    const auto begin = std::chrono::steady_clock::now();
    const double first_ns = used_ns(first);
    const double second_ns = used_ns(second);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - begin;
    return {(used_ns(first) - first_ns) / passed.count(),
            (used_ns(second) - second_ns) / passed.count()};
  }
  // Once the first one's part of what both use is between these.
  void ExpectPart(const FakeContainer& first, const FakeContainer& second, double least,
                  double most) {
    Shares last{};
    EXPECT_TRUE(node_.WaitFor([&] {
      last = Measure(first, second);
      return last.PartOfFirst() > least && last.PartOfFirst() < most;
    })) << last.PartOfFirst()
        << " is not between " << least << " and " << most << "\n"
        << node_.AgentLog();
  }
};

TEST_F(LivePolicy, Weights) {
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-b", "q");
  const testing::Process of_a = Rest(a);
  const testing::Process of_b = Rest(b);
  ExpectPart(a, b, 0.4, 0.6);
  node_.WritePolicy("namespaces: {team-b: {weight: 300}}\n");
  ExpectPart(a, b, 0.17, 0.33);
  node_.WritePolicy("namespaces: {team-a: {weight: 300}}\n");
  ExpectPart(a, b, 0.67, 0.83);
}

TEST_F(LivePolicy, Priorities) {
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-b", "q");
  const testing::Process of_a = Rest(a);
  const testing::Process of_b = Rest(b);
  ExpectPart(a, b, 0.4, 0.6);
  // What is starved gets a tenth of the time at most.
  node_.WritePolicy("namespaces: {team-a: {priority: high}}\n");
  ExpectPart(a, b, 0.85, 1.01);
  node_.WritePolicy("namespaces: {team-a: {priority: low}}\n");
  ExpectPart(a, b, -0.01, 0.15);
  node_.WritePolicy("{}\n");
  ExpectPart(a, b, 0.4, 0.6);
}

TEST_F(LivePolicy, Ceilings) {
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-a", "q");
  const testing::Process of_a = Rest(a);
  const testing::Process of_b = Rest(b);
  ExpectPart(a, b, 0.4, 0.6);
  const auto both_are_below = [&](double most) {
    return [&, most] {
      const Shares shares = Measure(a, b);
      return shares.first + shares.second < most;
    };
  };
  // The namespace's bounds both together, and a pod's only its own, which leaves the rest to the other.
  node_.WritePolicy("namespaces: {team-a: {timeShareMax: 30%}}\n");
  EXPECT_TRUE(node_.WaitFor(both_are_below(0.4))) << node_.AgentLog();
  node_.WritePolicy("namespaces: {team-a: {pods: {q: {timeShareMax: 20%}}}}\n");
  EXPECT_TRUE(node_.WaitFor([&] {
    const Shares shares = Measure(a, b);
    return shares.second < 0.25 && shares.first > 2 * shares.second;
  })) << node_.AgentLog();
  node_.WritePolicy("{}\n");
  ExpectPart(a, b, 0.4, 0.6);
}

TEST_F(LivePolicy, GlobsOfPodsAndContainers) {
  const FakeContainer training = Admit("team-a", "train-7");
  const FakeContainer serving = Admit("team-a", "serve-1");
  const testing::Process trains = Rest(training);
  const testing::Process serves = Rest(serving);
  ExpectPart(training, serving, 0.4, 0.6);
  node_.WritePolicy("namespaces: {team-a: {pods: {\"train-*\": {weight: 300}}}}\n");
  ExpectPart(training, serving, 0.67, 0.83);
  // The other one's, by its container, in whichever pod.
  node_.WritePolicy("namespaces: {team-a: {pods: {\"serve-*/ma*\": {weight: 300}}}}\n");
  ExpectPart(training, serving, 0.17, 0.33);
  // A glob that fits nobody is nobody's.
  node_.WritePolicy("namespaces: {team-a: {pods: {\"train-?/side*\": {weight: 300}}}}\n");
  ExpectPart(training, serving, 0.4, 0.6);
}

// softgpu has four multiprocessors, which are given in twos. Programs see theirs from their next start on; one that runs
// goes on with those that it has now.
TEST_F(LivePolicy, Multiprocessors) {
  const FakeContainer a = Admit("team-a", "p");
  testing::Process runs = Start(a, {"bystander"});
  ASSERT_TRUE(runs.ReadLine("ready").has_value()) << runs.output();
  const auto still_runs = [&] {
    runs.WriteLine("");
    return runs.ReadLine("slowest").has_value();
  };
  std::string output;
  const auto sees = [&](const FakeContainer& container, const char* multiprocessors) {
    const Ran ran = Run(container, "multiprocessors_static");
    output = ran.output;
    return ran.result.exit_code == 0 && ran.output.find(std::string(" ") + multiprocessors +
                                                        " multiprocessors") != std::string::npos;
  };
  EXPECT_TRUE(sees(a, "4")) << output;
  node_.WritePolicy("namespaces: {team-a: {smPercent: 50%}}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return sees(a, "2"); })) << output << node_.AgentLog();
  EXPECT_TRUE(still_runs()) << runs.output();
  node_.WritePolicy("namespaces: {team-a: {pods: {\"q*\": {smPercent: 50%}}}}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return sees(a, "4"); })) << output << node_.AgentLog();
  EXPECT_TRUE(still_runs()) << runs.output();
  node_.WritePolicy("namespaces: {team-a: {pods: {\"p*\": {smPercent: 50%}}}}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return sees(a, "2"); })) << output << node_.AgentLog();
  EXPECT_TRUE(still_runs()) << runs.output();
}

// A reservation that has no room beside another one's costs nobody what he has, is said, and is kept once there is room.
TEST_F(LivePolicy, AReservationWithoutRoomIsSaidAndKeptOnceThereIsRoom) {
  node_.WritePolicy(
      "namespaces: {\"team-*\": {trustDomain: shared}, team-a: {trustDomain: shared, smReserved: "
      "60%}}\n");
  ASSERT_TRUE(node_.WaitForLog("policy.yaml reloaded")) << node_.AgentLog();
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-b", "q");
  testing::Process of_a = Start(a, {"bystander"});
  testing::Process of_b = Start(b, {"bystander"});
  ASSERT_TRUE(of_a.ReadLine("ready").has_value()) << of_a.output();
  ASSERT_TRUE(of_b.ReadLine("ready").has_value()) << of_b.output();
  node_.WritePolicy(
      "namespaces: {team-b: {trustDomain: shared, smReserved: 60%}, team-a: {trustDomain: shared, "
      "smReserved: 60%}}\n");
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.SchedulerLogs().find(
               "policy: team-b/q/main keeps its multiprocessors: there is no room yet for") !=
           std::string::npos;
  })) << node_.SchedulerLogs();
  EXPECT_TRUE(node_.WaitForLog("event: GpuPartitionPending: pod team-b/q, container main: "))
      << node_.AgentLog();
  for (testing::Process* tenant : {&of_a, &of_b}) {
    tenant->WriteLine("");
    EXPECT_TRUE(tenant->ReadLine("slowest").has_value()) << tenant->output();
  }
  node_.WritePolicy(
      "namespaces: {team-b: {trustDomain: shared, smReserved: 60%}, team-a: {trustDomain: "
      "shared}}\n");
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.SchedulerLogs().find("policy: team-b/q/main now has") != std::string::npos;
  })) << node_.SchedulerLogs();
}

}  // namespace
}  // namespace gpuloom
