// SPDX-License-Identifier: Apache-2.0
// Turns at the device between executors: who is told what. How turns are divided is the deciding core's, and tested there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/unique_fd.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The scripted executor's answers.
constexpr uint32_t kNone = 0;
constexpr uint32_t kBounded = 1;
constexpr uint32_t kEndless = 2;
constexpr uint32_t kUnsaid = 3;

// What this process writes to stderr meanwhile, which can be read meanwhile.
class ErrorsInFile {
 public:
  explicit ErrorsInFile(std::filesystem::path path) : path_(std::move(path)), before_(dup(2)) {
    const channel::UniqueFd file(
        open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    EXPECT_EQ(dup2(file.get(), 2), 2);
  }
  ~ErrorsInFile() { dup2(before_.get(), 2); }
  ErrorsInFile(const ErrorsInFile&) = delete;
  ErrorsInFile& operator=(const ErrorsInFile&) = delete;
  std::string Read() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  const std::filesystem::path path_;
  const channel::UniqueFd before_;
};

class TurnTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
  }

  // A tenant with an executor of its own.
  void Join(Tenant* tenant, const std::string& name, control::ShareTerms shares = {}) {
    const std::string directory = Allocate(&client_, name, "domain-" + name);
    Bind(name, shares);
    ASSERT_TRUE(tenant->Attach(directory));
    ASSERT_TRUE(tenant->accepted()) << tenant->welcome.message;
  }
  void JoinBoth(Tenant* one, Tenant* two) {
    Join(one, "a");
    Join(two, "b");
  }
  void Bind(const std::string& name, control::ShareTerms shares) {
    control::BindAllocation bind = BindMessage(name, "domain-" + name, kGiB);
    bind.shares = shares;
    std::string error;
    EXPECT_TRUE(client_.BindAllocation(bind, &error)) << error;
  }

  static bool Becomes(Tenant* tenant, uint32_t turn) {
    const auto deadline = EventLoop::Clock::now() + seconds(60);
    while (EventLoop::Clock::now() < deadline) {
      if (tenant->OrderForNumber('/') == turn) return true;
    }
    return false;
  }
  // How often its executor has been given a turn, or had it ended, by what the scheduler has done of all that was said
  // and due before: it answers in order, and looks at its timers between two answers.
  static uint32_t Orders(Tenant* tenant) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(tenant->Order('m'), 0);
      EXPECT_EQ(tenant->Order('r'), 0);
    }
    return tenant->OrderForNumber('#');
  }
  // The same from now on, in so long.
  static uint32_t OrdersIn(Tenant* tenant, milliseconds time) {
    const uint32_t before = Orders(tenant);
    const auto deadline = EventLoop::Clock::now() + time;
    while (EventLoop::Clock::now() < deadline) tenant->OrderForNumber('#');
    return Orders(tenant) - before;
  }

  control::Client client_;
};

TEST_F(TurnTest, AnExecutorThatIsAloneHearsNothing) {
  Tenant tenant, neighbour;
  Join(&tenant, "a");
  ASSERT_TRUE(neighbour.Attach(Allocate(&client_, "b", "domain-a")));
  EXPECT_EQ(tenant.Order('+'), 'k');
  EXPECT_EQ(neighbour.Order('+'), 'k');
  EXPECT_EQ(tenant.Order('-'), 'k');
  ExpectServed(Allocate(&client_, "c", "domain-a"));
  EXPECT_EQ(tenant.OrderForNumber('/'), kUnsaid);
}

TEST_F(TurnTest, OneThatWantsTheDeviceAloneHasAnEndlessTurn) {
  Tenant works, idles;
  Join(&works, "a");
  Join(&idles, "b");
  EXPECT_TRUE(Becomes(&works, kNone)) << "from now on turns are given";
  EXPECT_TRUE(Becomes(&idles, kNone));
  EXPECT_EQ(works.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&works, kEndless));
  EXPECT_EQ(OrdersIn(&works, milliseconds(100)), 0u);
  // It pauses, and goes on.
  const uint32_t before = Orders(&works);
  EXPECT_EQ(works.Order('-'), 'k');
  EXPECT_EQ(works.Order('+'), 'k');
  EXPECT_EQ(OrdersIn(&works, milliseconds(100)), 0u);
  EXPECT_EQ(Orders(&works), before);
  EXPECT_EQ(idles.OrderForNumber('/'), kNone);
}

TEST_F(TurnTest, TwoThatWantItTakeTurns) {
  Tenant one, two;
  JoinBoth(&one, &two);
  EXPECT_EQ(one.Order('+'), 'k');
  EXPECT_EQ(two.Order('+'), 'k');
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Becomes(&one, kBounded));
    EXPECT_TRUE(Becomes(&one, kNone));
    EXPECT_TRUE(Becomes(&two, kBounded));
    EXPECT_TRUE(Becomes(&two, kNone));
  }
  EXPECT_EQ(two.Order('-'), 'k');
  EXPECT_TRUE(Becomes(&one, kEndless));
}

TEST_F(TurnTest, ATurnIsNotGivenBeforeTheLastOneHasDrained) {
  Tenant one, two;
  JoinBoth(&one, &two);
  EXPECT_EQ(one.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&one, kEndless));
  EXPECT_EQ(one.Order('b'), 'k');
  const auto asked = EventLoop::Clock::now();
  EXPECT_EQ(two.Order('+'), 'k');
  // A quantum of 5 ms, and 10 ms in which it is waited for.
  for (;;) {
    const uint32_t turn = two.OrderForNumber('/');
    if (EventLoop::Clock::now() - asked > milliseconds(10)) break;
    ASSERT_EQ(turn, kNone);
  }
  EXPECT_EQ(one.Order('B'), 'k');
  EXPECT_TRUE(Becomes(&two, kBounded));
}

TEST_F(TurnTest, AHigherClassEndsATurnAtOnce) {
  Tenant low, high;
  Join(&low, "a", {0, 0, 3, 0, 0});
  Join(&high, "b", {0, 0, 1, 0, 0});
  EXPECT_EQ(low.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&low, kEndless));
  EXPECT_EQ(high.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&high, kBounded));
  // Its class changes while it has the turn.
  Bind("b", {0, 0, 3, 0, 0});
  EXPECT_TRUE(Becomes(&low, kBounded));
}

TEST_F(TurnTest, AnExecutorThatDiesLeavesItsTurn) {
  Tenant one, two;
  JoinBoth(&one, &two);
  EXPECT_EQ(one.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&one, kEndless));
  EXPECT_EQ(one.Order('b'), 'k') << "it would not drain";
  EXPECT_EQ(two.Order('+'), 'k');
  EXPECT_EQ(one.Order('x'), -1);
  EXPECT_TRUE(Becomes(&two, kEndless));
  // And its domain goes on with another.
  const std::string directory = (root_ / "a").string();
  Tenant again;
  ASSERT_TRUE(again.Attach(directory));
  EXPECT_EQ(again.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&again, kBounded));
  EXPECT_TRUE(Becomes(&two, kBounded));
}

TEST_F(TurnTest, AFaultLeavesItsTurn) {
  Tenant one, two;
  JoinBoth(&one, &two);
  EXPECT_EQ(one.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&one, kEndless));
  EXPECT_EQ(one.Order('b'), 'k');
  EXPECT_EQ(two.Order('+'), 'k');
  EXPECT_EQ(one.Order('F'), -1);
  EXPECT_TRUE(Becomes(&two, kEndless));
}

TEST_F(TurnTest, AnAllocationThatIsRemovedWantsNothing) {
  Tenant one, two;
  JoinBoth(&one, &two);
  EXPECT_EQ(one.Order('+'), 'k');
  EXPECT_EQ(two.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&two, kBounded));
  std::string error;
  ASSERT_TRUE(client_.RemoveAllocation("a", &error)) << error;
  EXPECT_TRUE(Becomes(&two, kEndless));
}

// Programs that run stay where they are.
TEST_F(TurnTest, AnAllocationWhoseTrustDomainChangesHasTurnsInBoth) {
  Tenant old, other, young;
  Join(&old, "a");
  Join(&other, "b");
  control::BindAllocation bind = BindMessage("a", "elsewhere", kGiB);
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  ASSERT_TRUE(young.Attach((root_ / "a").string()));
  EXPECT_NE(young.OrderForNumber('p'), old.OrderForNumber('p'));
  EXPECT_EQ(old.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&old, kEndless));
  EXPECT_EQ(young.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&young, kBounded));
  EXPECT_TRUE(Becomes(&old, kBounded));
  ASSERT_TRUE(client_.RemoveAllocation("a", &error)) << error;
  EXPECT_EQ(other.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&other, kEndless));
}

TEST_F(TurnTest, Malicious_OneThatNeverDrainsIsNotWaitedForAndReportedOnce) {
  const ErrorsInFile errors(root_ / "errors");
  const auto reports = [&errors] {
    const std::string log = errors.Read();
    size_t lines = 0;
    for (size_t at = 0; (at = log.find("still has work at the device", at)) != log.npos; ++at)
      ++lines;
    return lines;
  };
  Tenant liar, honest;
  Join(&liar, "a");
  Join(&honest, "b");
  EXPECT_EQ(liar.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&liar, kEndless));
  EXPECT_EQ(liar.Order('b'), 'k');
  EXPECT_EQ(honest.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kBounded));
  EXPECT_EQ(liar.OrderForNumber('/'), kNone);
  // It keeps the device, but gets no turn any more; the honest one's goes on, also after it was reported.
  const uint32_t before = Orders(&honest);
  EXPECT_TRUE(WaitFor([&] { return reports() != 0; }));
  (void)OrdersIn(&honest, milliseconds(1000));
  EXPECT_LE(Orders(&honest) - before, 1u);
  EXPECT_EQ(honest.OrderForNumber('/'), kBounded);
  EXPECT_EQ(liar.Order('B'), 'k');
  EXPECT_TRUE(Becomes(&liar, kBounded)) << "it has drained after all";
  EXPECT_EQ(reports(), 1u) << errors.Read();
  EXPECT_THAT(errors.Read(), ::testing::HasSubstr("domain-a"));
}

TEST_F(TurnTest, Malicious_WhatADomainOwesForALongOverrunItOwesWithNewPodsToo) {
  Tenant liar, honest;
  Join(&liar, "a", {0, 1, 0, 0, 0});
  Join(&honest, "b", {0, 999, 0, 0, 0});
  EXPECT_EQ(liar.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&liar, kEndless));
  EXPECT_EQ(liar.Order('b'), 'k');
  EXPECT_EQ(honest.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kBounded));
  // It has more than half a second of the other's time, and owes more than four.
  EXPECT_LE(OrdersIn(&honest, milliseconds(1200)), 1u);
  const auto ended = EventLoop::Clock::now();
  std::string error;
  ASSERT_TRUE(client_.RemoveAllocation("a", &error)) << error;
  EXPECT_TRUE(liar.HungUp());
  Tenant again;
  const std::string directory = Add(&client_, "again");
  control::BindAllocation bind = BindMessage("again", "domain-a", kGiB);
  bind.shares = {0, 1, 0, 0, 0};
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  ASSERT_TRUE(again.Attach(directory));
  EXPECT_EQ(again.Order('+'), 'k');
  for (;;) {
    const uint32_t turn = again.OrderForNumber('/');
    if (EventLoop::Clock::now() - ended > seconds(2)) break;
    ASSERT_EQ(turn, kNone);
  }
}

// A pod for each kernel, each in a domain of its own: what the namespace has had above its ceiling it owes all the same.
TEST_F(TurnTest, Malicious_WhatANamespaceOwesItOwesWithNewPodsToo) {
  const control::ShareTerms hundredth{0, 0, 0, 10, 0};
  Tenant liar, honest;
  Join(&liar, "a", hundredth);
  const std::string theirs = Add(&client_, "b");
  control::BindAllocation bind = BindMessage("b", "domain-b", kGiB);
  control::SetText(bind.pod_namespace, "team-b");
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  ASSERT_TRUE(honest.Attach(theirs));
  EXPECT_EQ(liar.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&liar, kEndless));
  EXPECT_EQ(liar.Order('b'), 'k');
  EXPECT_EQ(honest.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kBounded));
  // It has some 100 ms of the other's time, and owes ten seconds.
  (void)OrdersIn(&honest, milliseconds(200));
  const auto ended = EventLoop::Clock::now();
  ASSERT_TRUE(client_.RemoveAllocation("a", &error)) << error;
  EXPECT_TRUE(liar.HungUp());
  Tenant again;
  const std::string new_pod = Add(&client_, "c");
  // With its ceiling from the beginning: a policy without one would clear the debt.
  bind = BindMessage("c", "domain-c", kGiB);
  bind.shares = hundredth;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  ASSERT_TRUE(again.Attach(new_pod));
  EXPECT_EQ(again.Order('+'), 'k');
  for (;;) {
    const uint32_t turn = again.OrderForNumber('/');
    if (EventLoop::Clock::now() - ended > seconds(2)) break;
    ASSERT_EQ(turn, kNone);
  }
}

class OverrunTest : public TurnTest {
 protected:
  static constexpr auto kLostExecutor = static_cast<size_t>(control::Fault::kLostExecutor);

  void SetUp() override {
    options_.overrun_limit = milliseconds(500);
    TurnTest::SetUp();
  }
  static uint64_t LostOf(const control::AllocationState& state) {
    return state.faults[kLostExecutor];
  }
  // One that never drains, beside an honest one: the first is ended, and the second has the device.
  void ExpectEnds(control::ShareTerms of_liar, control::ShareTerms of_honest) {
    ::testing::internal::CaptureStderr();
    Tenant liar, honest;
    Join(&liar, "a", of_liar);
    Join(&honest, "b", of_honest);
    EXPECT_EQ(liar.Order('+'), 'k');
    EXPECT_TRUE(Becomes(&liar, kEndless));
    EXPECT_EQ(liar.Order('b'), 'k');
    EXPECT_EQ(honest.Order('+'), 'k');
    EXPECT_TRUE(liar.HungUp());
    EXPECT_TRUE(Becomes(&honest, kEndless));
    EXPECT_EQ(honest.Order('m'), 0);
    const control::AllocationState state = State(&client_, "a");
    EXPECT_EQ(LostOf(state), 1u);
    EXPECT_THAT(state.latest_fault,
                ::testing::HasSubstr("of the GPU's time that was others' turn"));
    EXPECT_EQ(LostOf(State(&client_, "b")), 0u);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::HasSubstr("it was still at the device after its turn had ended"));
    control::GpuState gpu{};
    std::vector<control::DomainState> domains;
    std::string error;
    ASSERT_TRUE(client_.DescribeGpu(&gpu, &domains, &error)) << error;
    EXPECT_EQ(gpu.executors_lost, 1u);
    for (const control::DomainState& domain : domains) {
      EXPECT_EQ(domain.overruns, control::TextOf(domain.name) == "domain-a" ? 1u : 0u);
    }
    ExpectServed((root_ / "a").string());
  }
};

TEST_F(OverrunTest, Malicious_OneOfLittleWeightThatNeverDrainsIsEnded) {
  ExpectEnds({0, 1, 0, 0, 0}, {0, 99, 0, 0, 0});
}

TEST_F(OverrunTest, Malicious_OneOfALowClassThatNeverDrainsIsEnded) {
  ExpectEnds({0, 0, 3, 0, 0}, {0, 0, 1, 0, 0});
}

// As long as the policy lets a kernel run, and nobody else waits.
TEST_F(OverrunTest, AKernelThatThePolicyAllowsCostsNobodyHisExecutor) {
  Tenant slow, other;
  Join(&slow, "a");
  control::BindAllocation bind = BindMessage("a", "domain-a", kGiB);
  bind.kernels.end_after_ms = 600'000;
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  Join(&other, "b");
  EXPECT_EQ(slow.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&slow, kEndless));
  EXPECT_EQ(slow.Order('b'), 'k');
  EXPECT_EQ(other.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&other, kBounded));
  EXPECT_LE(OrdersIn(&other, 4 * options_.overrun_limit), 1u);
  EXPECT_EQ(slow.Order('B'), 'k');
  EXPECT_TRUE(Becomes(&slow, kBounded));
  EXPECT_EQ(LostOf(State(&client_, "a")), 0u);
}

TEST_F(OverrunTest, HowLongADomainWaitsAfterwardsIsSaid) {
  Tenant slow, other;
  Join(&slow, "a", {0, 1, 0, 0, 0});
  control::BindAllocation bind = BindMessage("a", "domain-a", kGiB);
  bind.shares = {0, 1, 0, 0, 0};
  bind.kernels.end_after_ms = 600'000;
  std::string error;
  ASSERT_TRUE(client_.BindAllocation(bind, &error)) << error;
  Join(&other, "b", {0, 99, 0, 0, 0});
  const auto wait_ns = [&](const char* name) {
    control::GpuState gpu{};
    std::vector<control::DomainState> domains;
    EXPECT_TRUE(client_.DescribeGpu(&gpu, &domains, &error)) << error;
    for (const control::DomainState& domain : domains) {
      if (control::TextOf(domain.name) == name) return domain.overrun_wait_ns;
    }
    return UINT64_MAX;
  };
  EXPECT_EQ(slow.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&slow, kEndless));
  EXPECT_EQ(slow.Order('b'), 'k');
  EXPECT_EQ(wait_ns("domain-a"), 0u);
  EXPECT_EQ(other.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&other, kBounded));
  const auto begun = EventLoop::Clock::now();
  (void)OrdersIn(&other, milliseconds(2500));
  EXPECT_EQ(slow.Order('B'), 'k');
  EXPECT_TRUE(WaitFor([&] { return wait_ns("domain-a") != 0; }));
  // Half of the time was charged to it, of which it owes nine times at most.
  EXPECT_LE(std::chrono::nanoseconds(wait_ns("domain-a")),
            9 * (EventLoop::Clock::now() - begun) / 2);
  EXPECT_EQ(wait_ns("domain-b"), 0u);
}

TEST_F(TurnTest, Malicious_OneThatAlwaysWantsAndNeverWorksTakesNoMoreThanItsShare) {
  Tenant liar, honest;
  Join(&liar, "a", {0, 100, 0, 0, 0});
  Join(&honest, "b", {0, 300, 0, 0, 0});
  EXPECT_EQ(liar.Order('+'), 'k');
  EXPECT_EQ(honest.Order('+'), 'k');
  // By the clock three of four. A machine that stands still makes turns of both longer, but not for ever.
  const auto least = EventLoop::Clock::now() + seconds(1);
  uint32_t of_honest = 0, of_liar = 0;
  EXPECT_TRUE(WaitFor([&] {
    for (int i = 0; i < 100; ++i) {
      of_honest += honest.OrderForNumber('/') == kBounded;
      of_liar += liar.OrderForNumber('/') == kBounded;
    }
    return EventLoop::Clock::now() >= least && 2 * of_honest > 3 * of_liar;
  })) << of_honest
      << " and " << of_liar;
  EXPECT_GT(of_honest, 0u);
}

TEST_F(TurnTest, Malicious_NonsenseAboutTurnsEndsItsExecutorAlone) {
  for (const char nonsense : {'?', ':'}) {
    const std::string name(1, nonsense == '?' ? 'a' : 'c');
    Tenant liar, honest;
    Join(&liar, name);
    Join(&honest, name + "-honest");
    EXPECT_EQ(honest.Order('+'), 'k');
    EXPECT_EQ(liar.Order(nonsense), -1);
    EXPECT_TRUE(liar.HungUp());
    EXPECT_TRUE(Becomes(&honest, kEndless));
    EXPECT_EQ(honest.Order('-'), 'k');
  }
}

TEST_F(TurnTest, Malicious_WhatIsSaidOfOthersIsIgnored) {
  Tenant liar, honest;
  Join(&liar, "a");
  Join(&honest, "b");
  EXPECT_EQ(honest.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kEndless));
  EXPECT_EQ(liar.Order('='), 'k');
  EXPECT_EQ(liar.Order('~'), 'k') << "nobody has asked";
  EXPECT_EQ(liar.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kBounded));
  EXPECT_TRUE(Becomes(&liar, kBounded));
  EXPECT_EQ(liar.Order('~'), 'k') << "it has the turn, which this does not end";
  EXPECT_TRUE(Becomes(&honest, kBounded));
}

// Each change of mind could be a message to the neighbour, which is ended when it cannot follow.
TEST_F(TurnTest, Malicious_ChangesOfMindAreNotPassedOn) {
  Tenant liar, honest;
  Join(&liar, "a");
  Join(&honest, "b");
  EXPECT_EQ(honest.Order('+'), 'k');
  EXPECT_TRUE(Becomes(&honest, kEndless));
  const uint32_t before = honest.OrderForNumber('#');
  const auto begun = EventLoop::Clock::now();
  EXPECT_EQ(liar.Order('!'), 'k');
  EXPECT_TRUE(Becomes(&honest, kEndless));
  const auto took = std::chrono::ceil<milliseconds>(EventLoop::Clock::now() - begun).count();
  const uint32_t orders = honest.OrderForNumber('#') - before;
  // Bounds change twice a millisecond at most; turns change with the answers of both.
  EXPECT_LE(orders, 2 * static_cast<uint64_t>(took) + 1000);
  EXPECT_EQ(honest.Order('m'), 0);
}

}  // namespace
}  // namespace gpuloom::scheduler
