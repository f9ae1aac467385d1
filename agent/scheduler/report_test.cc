// SPDX-License-Identifier: Apache-2.0
// What the scheduler counts and tells of allocations, trust domains and the GPU.
#include <array>
#include <bit>

#include "agent/scheduler/testing/scheduler_fixture.h"

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;  // what the scripted executor reports at once

std::array<uint64_t, sizeof(control::WorkCounts) / sizeof(uint64_t)> Figures(
    const control::AllocationState& state) {
  return std::bit_cast<std::array<uint64_t, sizeof(control::WorkCounts) / sizeof(uint64_t)>>(
      state.work);
}

class ReportTest : public SchedulerTest {
 protected:
  void SetUp() override {
    options_.version = "1.2.3 (test)";
    Start();
    client_ = Controller();
  }
  control::GpuState Gpu() {
    control::GpuState gpu;
    std::string error;
    EXPECT_TRUE(client_.DescribeGpu(&gpu, &domains_, &error)) << error;
    return gpu;
  }
  uint64_t Faults(const std::string& allocation, control::Fault fault) {
    return State(&client_, allocation).faults[static_cast<size_t>(fault)];
  }
  bool Has(const std::string& allocation, control::Fault fault) {
    return Becomes(&client_, allocation, [fault](const auto& state) {
      return state.faults[static_cast<size_t>(fault)] == 1;
    });
  }

  control::Client client_;
  std::vector<control::DomainState> domains_;
};

TEST_F(ReportTest, AGpuWithoutTenantsIsDescribed) {
  const control::GpuState gpu = Gpu();
  EXPECT_THAT(gpu.uuid, ::testing::StartsWith("GPU-"));
  EXPECT_STREQ(gpu.version, "1.2.3 (test)");
  EXPECT_EQ(gpu.memory_bytes, 16 * kGiB);
  EXPECT_EQ(gpu.memory_promised_bytes + gpu.memory_used_bytes, 0u);
  EXPECT_EQ(gpu.executors_started, 0u);
  EXPECT_TRUE(domains_.empty());
}

TEST_F(ReportTest, PromisesUseAndDomainsAreSummed) {
  Tenant one, two;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red", kGiB)));
  ASSERT_TRUE(two.Attach(Allocate(&client_, "b", "blue", 2 * kGiB)));
  Allocate(&client_, "c", "blue", kGiB);
  Add(&client_, "unbound");
  EXPECT_EQ(one.Order('m'), 0);
  const control::GpuState gpu = Gpu();
  EXPECT_EQ(gpu.memory_promised_bytes, 4 * kGiB);
  EXPECT_EQ(gpu.memory_used_bytes, State(&client_, "a").memory_used_bytes);
  EXPECT_GT(gpu.memory_used_bytes, 0u);
  EXPECT_EQ(gpu.allocations, 4u);
  EXPECT_EQ(gpu.slots, 4u);
  EXPECT_EQ(gpu.sessions, 2u);
  EXPECT_EQ(gpu.executors, 2u);
  EXPECT_EQ(gpu.executors_started, 2u);
  ASSERT_EQ(domains_.size(), 2u);
  EXPECT_STREQ(domains_[0].name, "blue");
  EXPECT_EQ(domains_[0].allocations, 2u);
  EXPECT_EQ(domains_[0].sessions, 1u);
  EXPECT_EQ(domains_[1].allocations, 1u);
  EXPECT_EQ(domains_[1].executors, 1u);
  EXPECT_EQ(domains_[1].executors_started, 1u);
}

TEST_F(ReportTest, EachDomainsExecutorSaysItsRelease) {
  Tenant one, older;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red")));
  SetExecutorStart("older");
  ASSERT_TRUE(older.Attach(Allocate(&client_, "b", "blue")));
  Allocate(&client_, "c", "without");
  Gpu();
  ASSERT_EQ(domains_.size(), 3u);
  EXPECT_STREQ(domains_[0].executor_version, "") << "an older one does not say it";
  EXPECT_EQ(domains_[0].executor_has_cupti, 0u);
  EXPECT_STREQ(domains_[1].executor_version, "1.2.4 (scripted\\x1b)");
  EXPECT_STREQ(domains_[1].executor_cupti, "libcupti.so.0");
  EXPECT_EQ(domains_[1].executor_has_cupti, 1u);
  EXPECT_STREQ(domains_[2].executor_version, "") << "it has none";
  // Once it is lost, nothing of it is said.
  one.SendByte('x');
  EXPECT_TRUE(Has("a", control::Fault::kLostExecutor));
  Gpu();
  EXPECT_STREQ(domains_[1].executor_version, "");
}

TEST_F(ReportTest, ATenantThatGoesBecauseItsExecutorHasGoneHasAFault) {
  Tenant one, other;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(other.Attach(Allocate(&client_, "b", "blue")));
  // The scheduler sees both at once, and what the executor had still to say first.
  device_.stalls = true;
  other.SendByte('m');
  device_.tries.wait(0);
  one.SendByte('X');
  EXPECT_TRUE(one.DoorbellHungUp());
  one.Leave();
  device_.stalls = false;
  device_.stalls.notify_all();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 0; }));
  EXPECT_TRUE(Has("a", control::Fault::kLostExecutor));
  EXPECT_EQ(other.Answer(), 0);
  // One that just leaves has none.
  other.Leave();
  EXPECT_TRUE(Becomes(&client_, "b", [](const auto& state) { return state.sessions == 0; }));
  EXPECT_EQ(Faults("b", control::Fault::kLostExecutor), 0u);
}

TEST_F(ReportTest, TenantsAreChargedForWhatTheDeviceWasBusy) {
  Tenant one, two;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(two.Attach(Allocate(&client_, "b", "red")));
  EXPECT_EQ(one.Order('1'), 'k');
  EXPECT_EQ(two.Order('1'), 'k');
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(Becomes(&client_, name, [](const auto& state) {
      return state.time.compute_ns == kMillisecondNs &&
             state.time.copy_from_device_ns == kMillisecondNs;
    }));
  }
  const control::GpuState gpu = Gpu();
  EXPECT_EQ(gpu.busy.compute_ns, 2 * kMillisecondNs);
  EXPECT_EQ(gpu.busy.copy_to_device_ns, 2 * kMillisecondNs);
  EXPECT_EQ(gpu.busy.copy_from_device_ns, 2 * kMillisecondNs);
  ASSERT_EQ(domains_.size(), 1u);
  EXPECT_EQ(domains_[0].busy.compute_ns, 2 * kMillisecondNs);
}

TEST_F(ReportTest, Malicious_NobodyIsChargedForMoreTimeThanHasPassed) {
  Tenant liar, other, honest;
  ASSERT_TRUE(liar.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(other.Attach(Allocate(&client_, "b", "blue")));
  EXPECT_EQ(liar.Order('9'), 'k');
  EXPECT_EQ(other.Order('9'), 'k');
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(
        Becomes(&client_, name, [](const auto& state) { return state.time.compute_ns > 0; }));
  }
  const uint64_t charged_ns =
      State(&client_, "a").time.compute_ns + State(&client_, "b").time.compute_ns;
  const control::GpuState gpu = Gpu();
  EXPECT_GE(gpu.busy.compute_ns, charged_ns);
  EXPECT_LE(gpu.busy.compute_ns, gpu.running_ns);
  // And an honest one's time is its own.
  liar.Leave();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 0; }));
  ASSERT_TRUE(honest.Attach(Allocate(&client_, "c", "green")));
  EXPECT_EQ(honest.Order('1'), 'k');
  EXPECT_TRUE(Becomes(&client_, "c",
                      [](const auto& state) { return state.time.compute_ns == kMillisecondNs; }));
}

TEST_F(ReportTest, CountsOfLiveAndEndedSessionsAreSummed) {
  const std::string directory = Allocate(&client_, "a", "red");
  Tenant first, second;
  ASSERT_TRUE(first.Attach(directory) && second.Attach(directory));
  EXPECT_EQ(first.Order('1'), 'k');
  EXPECT_EQ(second.Order('1'), 'k');
  const auto has_two = [](const control::AllocationState& state) {
    for (const uint64_t figure : Figures(state)) {
      if (figure != 2 * kMillisecondNs) return false;
    }
    return true;
  };
  EXPECT_TRUE(Becomes(&client_, "a", has_two));
  first.Leave();
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 1; }));
  EXPECT_TRUE(has_two(State(&client_, "a")));
  EXPECT_EQ(State(&client_, "a").sessions_begun, 2u);
}

TEST_F(ReportTest, Malicious_ACountNeverGoesBackAndNeverOverflows) {
  const std::string directory = Allocate(&client_, "a", "red");
  Tenant liar, honest;
  ASSERT_TRUE(liar.Attach(directory) && honest.Attach(directory));
  EXPECT_EQ(honest.Order('1'), 'k');
  EXPECT_EQ(liar.Order('1'), 'k');
  EXPECT_EQ(liar.Order('0'), 'k');
  const auto all_are = [](uint64_t value) {
    return [value](const control::AllocationState& state) {
      for (const uint64_t figure : Figures(state)) {
        if (figure != value) return false;
      }
      return true;
    };
  };
  EXPECT_TRUE(Becomes(&client_, "a", all_are(2 * kMillisecondNs)));
  EXPECT_EQ(liar.Order('9'), 'k');
  EXPECT_TRUE(Becomes(&client_, "a", all_are(UINT64_MAX)));
}

TEST_F(ReportTest, RefusedSessionsAreCounted) {
  const std::string directory = Add(&client_, "a");
  Tenant early;
  EXPECT_FALSE(early.Attach(directory) && early.accepted());
  EXPECT_EQ(State(&client_, "a").sessions_refused, 1u);
  EXPECT_THAT(State(&client_, "a").latest_refusal,
              ::testing::HasSubstr("the node's agent has not said which pod this is"));
  EXPECT_STREQ(State(&client_, "a").latest_fault, "");
  EXPECT_EQ(State(&client_, "a").sessions_begun, 0u);
}

TEST_F(ReportTest, WhoBrokeTheProtocolIsCountedAndTheNeighbourIsNot) {
  Tenant breaker, neighbour;
  ASSERT_TRUE(breaker.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(neighbour.Attach(Allocate(&client_, "b", "red")));
  breaker.SendByte('e');
  EXPECT_TRUE(Has("a", control::Fault::kBrokeProtocol));
  for (const uint64_t count : State(&client_, "b").faults) EXPECT_EQ(count, 0u);
}

TEST_F(ReportTest, AFaultSaysWhichKernelAndTheNeighbourIsNotTold) {
  Tenant culprit, neighbour;
  ASSERT_TRUE(culprit.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(neighbour.Attach(Allocate(&client_, "b", "red")));
  culprit.SendByte('F');
  EXPECT_TRUE(Has("a", control::Fault::kLostDevice));
  EXPECT_STREQ(
      State(&client_, "a").latest_fault,
      "the device context was lost with CUDA_ERROR_ILLEGAL_ADDRESS (700) by kernel broken");
  EXPECT_TRUE(Has("b", control::Fault::kLostExecutor));
  EXPECT_STREQ(State(&client_, "b").latest_fault,
               "its executor ended, mostly by a neighbour's fault: device context lost with "
               "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

TEST_F(ReportTest, AFaultIsSaidAlsoWhereOtherProcessesOfItsContainerAreLostByIt) {
  Tenant first, culprit, last, neighbour;
  const std::string directory = Allocate(&client_, "a", "red");
  ASSERT_TRUE(first.Attach(directory));
  ASSERT_TRUE(culprit.Attach(directory));
  ASSERT_TRUE(last.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(Allocate(&client_, "b", "red")));
  culprit.SendByte('F');
  EXPECT_TRUE(Has("a", control::Fault::kLostDevice));
  EXPECT_EQ(Faults("a", control::Fault::kLostExecutor), 2u);
  EXPECT_STREQ(
      State(&client_, "a").latest_fault,
      "the device context was lost with CUDA_ERROR_ILLEGAL_ADDRESS (700) by kernel broken");
}

TEST_F(ReportTest, WhoComesWhileANeighbourFaultsIsNotToldWhoItWas) {
  Tenant culprit, late;
  ASSERT_TRUE(culprit.Attach(Allocate(&client_, "a", "red")));
  ASSERT_NE(culprit.Order('U'), -1);
  const std::string directory = Allocate(&client_, "b", "red");
  const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  ASSERT_TRUE(late.Connect(directory));
  ASSERT_TRUE(channel::SendMessage(late.socket.get(), &hello, sizeof(hello)));
  ASSERT_TRUE(Becomes(&client_, "b", [](const auto& state) { return state.sessions == 1; }));
  culprit.SendByte('F');
  ASSERT_TRUE(late.ReceiveWelcome());
  EXPECT_EQ(late.welcome.admission, wire::Admission::kDeviceLost);
  EXPECT_THAT(late.welcome.message, ::testing::EndsWith("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
}

TEST_F(ReportTest, Malicious_RefusalsDoNotHideWhatAProcessHasEndedBy) {
  const std::string directory = Allocate(&client_, "a", "red");
  Tenant culprit;
  ASSERT_TRUE(culprit.Attach(directory));
  culprit.SendByte('F');
  EXPECT_TRUE(Has("a", control::Fault::kLostDevice));
  const std::string fault = State(&client_, "a").latest_fault;
  const wire::Hello hello{wire::kHelloMagic,      wire::kWireMajor, wire::kWireMinor, 0, 0, 0,
                          wire::SessionToken{{1}}};
  Tenant refused;
  ASSERT_TRUE(refused.Connect(directory));
  ASSERT_TRUE(channel::SendMessage(refused.socket.get(), &hello, sizeof(hello)));
  ASSERT_TRUE(refused.ReceiveWelcome());
  EXPECT_THAT(State(&client_, "a").latest_refusal, ::testing::HasSubstr("not supported yet"));
  EXPECT_EQ(State(&client_, "a").latest_fault, fault);
}

TEST_F(ReportTest, ALostExecutorIsCountedForAllThatHadSessionsThere) {
  Tenant one, other, elsewhere;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(other.Attach(Allocate(&client_, "b", "red")));
  ASSERT_TRUE(elsewhere.Attach(Allocate(&client_, "c", "blue")));
  one.SendByte('x');
  EXPECT_TRUE(Has("a", control::Fault::kLostExecutor));
  EXPECT_TRUE(Has("b", control::Fault::kLostExecutor));
  EXPECT_EQ(Faults("c", control::Fault::kLostExecutor), 0u);
  EXPECT_THAT(State(&client_, "b").latest_fault,
              ::testing::StartsWith("its executor ended, mostly by a neighbour's fault: "));
  EXPECT_STREQ(State(&client_, "c").latest_fault, "");
  EXPECT_EQ(Gpu().executors_lost, 1u);
  ASSERT_EQ(domains_.size(), 2u);
  EXPECT_EQ(domains_[0].executors_lost, 0u);
  EXPECT_EQ(domains_[1].executors_lost, 1u);
}

TEST_F(ReportTest, ExecutorsThatDoNotStartAreCounted) {
  SetExecutorStart("refuse");
  Tenant tenant;
  EXPECT_FALSE(tenant.Attach(Allocate(&client_, "a", "red")) && tenant.accepted());
  const auto deadline = EventLoop::Clock::now() + std::chrono::seconds(60);
  while (Gpu().executors_failed == 0 && EventLoop::Clock::now() < deadline) {
  }
  EXPECT_EQ(Gpu().executors_failed, 1u);
}

}  // namespace
}  // namespace gpuloom::scheduler
