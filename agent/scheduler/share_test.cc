// SPDX-License-Identifier: Apache-2.0
// Terms for the device's time, suspending, and what sessions report of their use.
#include <gtest/gtest.h>

#include "agent/scheduler/testing/scheduler_fixture.h"

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;  // what the scripted executor reports at once

class ShareTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
  }

  void Bind(const std::string& name, const control::ShareTerms& shares,
            const std::string& pod_namespace = "team-a") {
    control::BindAllocation bind = BindMessage(name, "domain", kGiB);
    control::SetText(bind.pod_namespace, pod_namespace.c_str());
    bind.shares = shares;
    std::string error;
    EXPECT_TRUE(client_.BindAllocation(bind, &error)) << error;
  }
  void Suspend(const std::string& name, bool suspend) {
    std::string error;
    EXPECT_TRUE(client_.SuspendAllocation(name, suspend, &error)) << error;
  }
  bool BecomesHeld(uint32_t sessions) {
    return Becomes(&client_, "a", [&](const control::AllocationState& state) {
      return state.held_sessions == sessions;
    });
  }

  control::Client client_;
};

TEST_F(ShareTest, TermsComeWithASessionAndChangeWhileItRuns) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {0, 300, 1, 0, 0});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.OrderForNumber('v'), 300u);
  Bind("a", {0, 400, 1, 0, 0});
  EXPECT_EQ(State(&client_, "a").shares.weight, 400u);
  EXPECT_EQ(tenant.OrderForNumber('v'), 400u);
  EXPECT_EQ(tenant.OrderForNumber('V'), 1u);
}

TEST_F(ShareTest, PartsOfTheMultiprocessorsComeWithASessionAndChangeWhileItRuns) {
  const std::string directory = Add(&client_, "a");
  control::BindAllocation bind = BindMessage("a", "domain", kGiB);
  bind.partition = {0, 0, 25, 10};
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.OrderForNumber('Y'), 25u);
  bind.partition.sm_percent = 50;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  EXPECT_EQ(tenant.OrderForNumber('Y'), 50u);
  bind.partition.sm_percent = 101;
  EXPECT_FALSE(client_.BindAllocation(bind, &error));
  EXPECT_NE(error.find("multiprocessors"), error.npos) << error;
  EXPECT_EQ(tenant.OrderForNumber('Y'), 50u);
}

TEST_F(ShareTest, TermsThatAreNotInForceYetAreSaidWithTheReasonAndCounted) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const auto becomes = [&](const char* why, uint64_t times) {
    return Becomes(&client_, "a", [&](const control::AllocationState& state) {
      return control::TextOf(state.pending_partition) == why && state.pending_partitions == times;
    });
  };
  EXPECT_TRUE(becomes("", 0));
  EXPECT_EQ(tenant.Order('j'), 'k');
  EXPECT_TRUE(becomes("no\\nroom", 1)) << "in one line";
  EXPECT_EQ(tenant.Order('j'), 'k');
  EXPECT_EQ(tenant.Order('J'), 'k');
  EXPECT_TRUE(becomes("", 1));
  EXPECT_EQ(tenant.Order('j'), 'k');
  EXPECT_TRUE(becomes("no\\nroom", 2));
  tenant.Leave();
  EXPECT_TRUE(becomes("", 2)) << "its next process begins with them, or not at all";
}

TEST_F(ShareTest, Malicious_AnExecutorSpeaksOfItsOwnAllocationsOnly) {
  const std::string first = Add(&client_, "a"), second = Add(&client_, "b");
  Bind("a", {});
  control::BindAllocation bind = BindMessage("b", "another domain", kGiB);
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  Tenant hostile, honest;
  ASSERT_TRUE(hostile.Attach(first) && honest.Attach(second));
  EXPECT_EQ(hostile.Order('f'), 'k');
  EXPECT_EQ(hostile.Order('j'), 'k');
  EXPECT_TRUE(Becomes(&client_, "a", [](const control::AllocationState& state) {
    return state.pending_partition[0] != 0;
  }));
  EXPECT_EQ(State(&client_, "b").pending_partitions, 0u);
  EXPECT_EQ(honest.Order('m'), 0) << "and is served";
}

TEST_F(ShareTest, WhenItIsRescuedComesWithASessionAndChangesWhileItRuns) {
  const std::string directory = Add(&client_, "a");
  control::BindAllocation bind = BindMessage("a", "domain", kGiB);
  bind.rescue_after_ms = 2000;
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.OrderForNumber('y'), 2000u);
  bind.rescue_after_ms = control::kNeverRescued;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  EXPECT_EQ(tenant.OrderForNumber('y'), control::kNeverRescued);
}

TEST_F(ShareTest, TheExecutorHearsNothingWhereNothingHasChanged) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {0, 300, 1, 0, 0});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  Bind("a", {0, 300, 1, 0, 0});
  Add(&client_, "a");
  EXPECT_EQ(tenant.OrderForNumber('V'), 0u);
}

TEST_F(ShareTest, TermsOfOneAllocationAreNoOthers) {
  const std::string first = Add(&client_, "a"), second = Add(&client_, "b");
  Bind("a", {0, 100, 0, 0, 0});
  Bind("b", {0, 200, 0, 0, 0});
  Tenant one, other;
  ASSERT_TRUE(one.Attach(first) && other.Attach(second));
  Bind("a", {0, 150, 0, 0, 0});
  EXPECT_EQ(one.OrderForNumber('v'), 150u);
  EXPECT_EQ(other.OrderForNumber('v'), 200u);
}

TEST_F(ShareTest, TermsThatCannotBeAreRefused) {
  Add(&client_, "a");
  for (const control::ShareTerms& shares :
       {control::ShareTerms{1001, 0, 0, 0, 0}, control::ShareTerms{0, 1001, 0, 0, 0},
        control::ShareTerms{0, 0, 4, 0, 0}, control::ShareTerms{0, 0, 0, 1001, 0},
        control::ShareTerms{0, 0, 0, 0, 1001}}) {
    control::BindAllocation bind = BindMessage("a", "domain", kGiB);
    bind.shares = shares;
    std::string error;
    EXPECT_FALSE(client_.BindAllocation(bind, &error));
    EXPECT_THAT(error, ::testing::HasSubstr("weights are 1 to 1000"));
  }
  EXPECT_EQ(State(&client_, "a").bound, 0u);
}

TEST_F(ShareTest, ANamespaceHasOneNumberForAllItsAllocations) {
  const std::string directories[] = {Add(&client_, "a"), Add(&client_, "b"), Add(&client_, "c")};
  Bind("a", {}, "team-a");
  Bind("b", {}, "team-a");
  Bind("c", {}, "team-b");
  Tenant tenants[3];
  uint32_t numbers[3], allocations[3];
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(tenants[i].Attach(directories[i]));
    numbers[i] = tenants[i].OrderForNumber('N');
    allocations[i] = tenants[i].OrderForNumber('A');
  }
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_NE(numbers[0], numbers[2]);
  EXPECT_NE(allocations[0], allocations[1]);

  // And when its last allocation has gone, nobody else gets it.
  tenants[2].Leave();
  std::string error;
  ASSERT_TRUE(client_.RemoveAllocation("c", &error)) << error;
  const std::string again = Add(&client_, "d");
  Bind("d", {}, "team-c");
  Tenant next;
  ASSERT_TRUE(next.Attach(again));
  EXPECT_NE(next.OrderForNumber('N'), numbers[2]);
}

TEST_F(ShareTest, ASuspendedAllocationIsHeldOnceNothingOfItRuns) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant works, idles;
  ASSERT_TRUE(works.Attach(directory) && idles.Attach(directory));
  EXPECT_EQ(works.Order('b'), 'k');
  Suspend("a", true);
  EXPECT_TRUE(BecomesHeld(1));
  EXPECT_EQ(works.Order('H'), 1);
  control::AllocationState state = State(&client_, "a");
  EXPECT_EQ(state.suspended, 1u);
  EXPECT_EQ(state.sessions, 2u);
  EXPECT_EQ(state.held_sessions, 1u) << "a kernel of the other still runs";
  EXPECT_EQ(works.Order('B'), 'k');
  EXPECT_TRUE(BecomesHeld(2));

  Suspend("a", false);
  EXPECT_EQ(works.Order('H'), 0);
  EXPECT_EQ(idles.Order('H'), 0);
  state = State(&client_, "a");
  EXPECT_EQ(state.suspended, 0u);
  EXPECT_EQ(state.held_sessions, 0u);
}

TEST_F(ShareTest, ASuspendedAllocationStaysSoWithoutItsClientAndForNewSessions) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Suspend("a", true);
  client_ = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('H'), 1);
  EXPECT_TRUE(BecomesHeld(1));
  EXPECT_EQ(tenant.Order('m'), 0) << "it is held, not ended";
}

TEST_F(ShareTest, NobodyElseIsSuspended) {
  const std::string directory = Add(&client_, "b");
  Add(&client_, "a");
  Bind("a", {});
  Bind("b", {});
  Tenant neighbour;
  ASSERT_TRUE(neighbour.Attach(directory));
  Suspend("a", true);
  EXPECT_EQ(neighbour.Order('H'), 0);
}

TEST_F(ShareTest, SuspendingWhatIsNotThereSaysSo) {
  std::string error;
  EXPECT_FALSE(client_.SuspendAllocation("nobody", true, &error));
  EXPECT_EQ(error, "scheduler: allocation nobody is not known");
}

TEST_F(ShareTest, ASuspendedTenantThatLeavesIsGone) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  Suspend("a", true);
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 0; }));
  Suspend("a", false);
  ExpectServed(directory);
}

TEST_F(ShareTest, UseOfLiveAndEndedSessionsIsSummed) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant first, second;
  ASSERT_TRUE(first.Attach(directory) && second.Attach(directory));
  EXPECT_EQ(first.Order('1'), 'k');
  EXPECT_EQ(second.Order('1'), 'k');
  const auto has_two = [](const control::AllocationState& state) {
    return state.time.compute_ns == 2 * kMillisecondNs &&
           state.time.copy_to_device_ns == 2 * kMillisecondNs &&
           state.time.copy_from_device_ns == 2 * kMillisecondNs &&
           state.time.queue_ns == 2 * kMillisecondNs &&
           state.time.throttled_ns == 2 * kMillisecondNs &&
           state.time.held_ns == 2 * kMillisecondNs;
  };
  EXPECT_TRUE(Becomes(&client_, "a", has_two));
  first.Leave();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 1; }));
  EXPECT_TRUE(has_two(State(&client_, "a")));
}

TEST_F(ShareTest, Malicious_ReportedUseNeverGoesBackAndNeverOverflows) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant liar, honest;
  ASSERT_TRUE(liar.Attach(directory) && honest.Attach(directory));
  EXPECT_EQ(honest.Order('1'), 'k');
  EXPECT_EQ(liar.Order('1'), 'k');
  EXPECT_EQ(liar.Order('0'), 'k');
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) {
    return state.time.compute_ns == 2 * kMillisecondNs;
  }));
  EXPECT_EQ(liar.Order('9'), 'k');
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) {
    return state.time.queue_ns == UINT64_MAX && state.time.held_ns == UINT64_MAX;
  }));
  liar.Leave();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 1; }));
  EXPECT_EQ(State(&client_, "a").time.held_ns, UINT64_MAX);
}

TEST_F(ShareTest, Malicious_AHoldThatNobodyAskedForIsNotBelieved) {
  const std::string directory = Add(&client_, "a");
  Bind("a", {});
  Tenant liar;
  ASSERT_TRUE(liar.Attach(directory));
  EXPECT_EQ(liar.Order('L'), 'k');
  // Behind what its executor has said.
  EXPECT_EQ(liar.Order('m'), 0);
  EXPECT_EQ(State(&client_, "a").held_sessions, 0u);
  // And one of an earlier hold is none of a later one's.
  EXPECT_EQ(liar.Order('b'), 'k');
  Suspend("a", true);
  EXPECT_EQ(liar.Order('L'), 'k');
  EXPECT_EQ(liar.Order('H'), 1);
  EXPECT_EQ(liar.Order('m'), 0);
  EXPECT_EQ(State(&client_, "a").held_sessions, 0u);
  ExpectServed(directory);
}

}  // namespace
}  // namespace gpuloom::scheduler
