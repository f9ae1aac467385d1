// SPDX-License-Identifier: Apache-2.0
// Sessions that may use a part of the device's multiprocessors, on the real loop with a driver that writes down what it is
// asked: a device of 132, in groups of 8.
#include "agent/executor/device/partitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using wire::DevicePartId;
using wire::GraphId;
using wire::GreenContextId;
using wire::StreamId;

constexpr control::PartitionTerms kQuarter{0, 0, 25, 0};
constexpr control::PartitionTerms kHalf{0, 0, 50, 0};
constexpr control::PartitionTerms kReservesQuarter{0, 25, 0, 0};

CUresult SplitInTwos(CUdevResource* groups, unsigned* count, const CUdevResource* input,
                     CUdevResource* remaining, unsigned, unsigned) {
  *count = std::min(*count, input->sm.smCount / 2);
  for (unsigned i = 0; i < *count; ++i) {
    groups[i] = *input;
    groups[i].sm.smCount = 2;
  }
  *remaining = {};
  return CUDA_SUCCESS;
}

class PartitionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestingTenant> Add(const control::PartitionTerms& terms) {
    scheduler_.partition = terms;
    auto tenant = scheduler_.AddTenant();
    if (tenant->ready.ok != 0) {
      EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    }
    return tenant;
  }
  // Multiprocessors of the stream in which its next launch goes; 0: of an ordinary one.
  int NextLaunch(TestingTenant* tenant, uint32_t stream = 0) {
    TestingDriver::TakeCalls();
    EXPECT_TRUE(tenant->WaitDone(stream, tenant->LaunchPlain(stream, 1)));
    for (const std::string& call : TestingDriver::TakeCalls()) {
      const size_t of = call.find(" of ");
      if (call.starts_with("green stream "))
        multiprocessors_[call.substr(13, of - 13)] = std::stoi(call.substr(of + 4));
      if (call.starts_with("launch ")) return multiprocessors_[call.substr(7)];
    }
    ADD_FAILURE() << "no launch";
    return -1;
  }
  // Until its launches go there.
  bool Follows(TestingTenant* tenant, int multiprocessors, uint32_t stream = 0) {
    for (int i = 0; i < 10'000; ++i) {
      if (NextLaunch(tenant, stream) == multiprocessors) return true;
    }
    return false;
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, /*batches=*/false};  // each launch is one call
  std::map<std::string, int> multiprocessors_;              // of green streams
};

TEST_F(PartitionsTest, ALimitedTenantsKernelsGoToItsPart) {
  const auto limited = Add(kQuarter);
  EXPECT_EQ(limited->ready.multiprocessors, 32u);
  EXPECT_EQ(NextLaunch(limited.get()), 32);
  ASSERT_TRUE(limited->CreateStream(3, true));
  EXPECT_EQ(NextLaunch(limited.get(), 3), 32);
  const auto free = Add({});
  EXPECT_EQ(free->ready.multiprocessors, 0u);
  EXPECT_EQ(NextLaunch(free.get()), 0);
}

TEST_F(PartitionsTest, ANamespacesLimitIsItsAllocationsTogether) {
  const auto limited = Add({25, 0, 0, 0});
  EXPECT_EQ(NextLaunch(limited.get()), 32);
  const auto both = Add({50, 0, 25, 0});
  EXPECT_EQ(NextLaunch(both.get()), 32) << "a quarter of the device, within its namespace's half";
}

TEST_F(PartitionsTest, AChangeMovesWhoeverRuns) {
  const auto tenant = Add({});
  EXPECT_EQ(NextLaunch(tenant.get()), 0);
  scheduler_.SetPartition(*tenant, kQuarter);
  EXPECT_TRUE(Follows(tenant.get(), 32));
  scheduler_.SetPartition(*tenant, kHalf);
  EXPECT_TRUE(Follows(tenant.get(), 64));
  scheduler_.SetPartition(*tenant, {});
  EXPECT_TRUE(Follows(tenant.get(), 0));
  EXPECT_EQ(tenant->reader.async_error_count(), 0u);
}

TEST_F(PartitionsTest, WhatIsReservedIsLeftByEverybodyElse) {
  const auto free = Add({});
  EXPECT_EQ(NextLaunch(free.get()), 0);
  auto reserves = Add(kReservesQuarter);
  EXPECT_EQ(NextLaunch(reserves.get()), 0) << "its own, and what all may use";
  EXPECT_TRUE(Follows(free.get(), 100));
  scheduler_.RemoveTenant(*reserves);
  ASSERT_TRUE(scheduler_.WaitEnded(reserves->order.session_id).has_value());
  EXPECT_TRUE(Follows(free.get(), 0));
}

TEST_F(PartitionsTest, AReservationThatDoesNotFitIsRefusedByName) {
  const auto first = Add({0, 60, 0, 0});
  ASSERT_EQ(first->ready.ok, 1u);
  const auto second = Add({0, 60, 0, 0});
  EXPECT_EQ(second->ready.ok, 0u);
  EXPECT_THAT(second->ready.message, HasSubstr("smReserved does not fit"));
  EXPECT_EQ(NextLaunch(first.get()), 0) << "the first goes on";
}

TEST_F(PartitionsTest, ADriverThatCannotDivideRefusesByName) {
  Driver old = driver_;
  old.cuGreenCtxCreate = nullptr;
  TestingScheduler scheduler(old, /*batches=*/false);
  scheduler.partition = kQuarter;
  const auto limited = scheduler.AddTenant();
  EXPECT_EQ(limited->ready.ok, 0u);
  EXPECT_THAT(limited->ready.message, HasSubstr("CUDA 12.5"));
  scheduler.partition = {};
  const auto free = scheduler.AddTenant();
  ASSERT_EQ(free->ready.ok, 1u);
  // Live, the terms that were kept before stay.
  scheduler.SetPartition(*free, kQuarter);
  ASSERT_TRUE(free->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_TRUE(free->WaitDone(0, free->LaunchPlain(0, 1)));
}

TEST_F(PartitionsTest, AnExecutableGraphIsMadeAgainForOtherMultiprocessors) {
  const auto tenant = Add({});
  TestingGraph definition;
  definition.AddKernel(1, PlainParams());
  ASSERT_EQ(tenant->Call<wire::GraphInstantiate>({GraphId{1}, 0, wire::HostPtr{0}, 0}, nullptr,
                                                 definition.Block()),
            CUDA_SUCCESS);
  const auto launch = [&] {
    return tenant->WaitDone(0, tenant->Post<wire::GraphLaunch>({GraphId{1}, StreamId{0}}));
  };
  ASSERT_TRUE(launch());
  scheduler_.SetPartition(*tenant, kQuarter);
  ASSERT_TRUE(Follows(tenant.get(), 32));
  TestingDriver::TakeCalls();
  ASSERT_TRUE(launch());
  const std::vector<std::string> calls = TestingDriver::TakeCalls();
  EXPECT_THAT(calls, Contains(StartsWith("graph ")));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "instantiate"), 1);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "node of context 32"), 1);
  ASSERT_TRUE(launch());
  EXPECT_EQ(tenant->reader.async_error_count(), 0u);
  // One that cannot be made again does not run on multiprocessors that are no longer the session's. After the next change
  // it is tried again.
  TestingDriver::RefuseGraphs(CUDA_ERROR_OUT_OF_MEMORY);
  scheduler_.SetPartition(*tenant, kHalf);
  ASSERT_TRUE(Follows(tenant.get(), 64));
  TestingDriver::TakeCalls();
  ASSERT_TRUE(launch());
  EXPECT_EQ(tenant->reader.async_error_count(), 1u);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains(StartsWith("graph "))));
  TestingDriver::RefuseGraphs(CUDA_SUCCESS);
  scheduler_.SetPartition(*tenant, kQuarter);
  ASSERT_TRUE(Follows(tenant.get(), 32));
  ASSERT_TRUE(launch());
  scheduler_.SetPartition(*tenant, kHalf);
  ASSERT_TRUE(Follows(tenant.get(), 64));
  TestingDriver::TakeCalls();
  ASSERT_TRUE(launch());
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("node of context 64"));
  EXPECT_EQ(tenant->reader.async_error_count(), 1u);
}

TEST_F(PartitionsTest, APartThatCannotBeMadeEndsItsSessionsAloneAndIsTriedAgain) {
  static std::atomic<bool> is_full;
  static decltype(Driver::cuGreenCtxCreate) make;
  is_full = true;
  make = driver_.cuGreenCtxCreate;
  Driver driver = driver_;
  driver.cuGreenCtxCreate = [](CUgreenCtx* made, CUdevResourceDesc of, CUdevice device,
                               unsigned flags) {
    return is_full ? CUDA_ERROR_OUT_OF_MEMORY : make(made, of, device, flags);
  };
  TestingScheduler scheduler(driver, /*batches=*/false);
  scheduler.partition = kQuarter;
  const auto limited = scheduler.AddTenant();
  ASSERT_TRUE(scheduler.WaitEnded(limited->order.session_id).has_value());
  EXPECT_EQ(limited->reader.fault(), CUDA_ERROR_OUT_OF_MEMORY);
  is_full = false;
  for (const control::PartitionTerms& terms : {kQuarter, control::PartitionTerms{}}) {
    scheduler.partition = terms;
    const auto next = scheduler.AddTenant();
    ASSERT_TRUE(next->LoadKernel(1, 1, "k", kEmptyPtx));
    EXPECT_TRUE(next->WaitDone(0, next->LaunchPlain(0, 1)));
  }
}

// The driver would not give back the memory of the context.
TEST_F(PartitionsTest, APartThatHasNoStreamYetIsNotMadeTwice) {
  static std::atomic<bool> is_full;
  static decltype(Driver::cuGreenCtxStreamCreate) make;
  is_full = true;
  make = driver_.cuGreenCtxStreamCreate;
  Driver driver = driver_;
  driver.cuGreenCtxStreamCreate = [](CUstream* made, CUgreenCtx of, unsigned flags, int priority) {
    return is_full ? CUDA_ERROR_OUT_OF_MEMORY : make(made, of, flags, priority);
  };
  TestingScheduler scheduler(driver, /*batches=*/false);
  scheduler.partition = kQuarter;
  const auto first = scheduler.AddTenant();
  ASSERT_TRUE(scheduler.WaitEnded(first->order.session_id).has_value());
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains(StartsWith("green context of 32")));
  is_full = false;
  const auto next = scheduler.AddTenant();
  ASSERT_TRUE(next->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_TRUE(next->WaitDone(0, next->LaunchPlain(0, 1)));
  const std::vector<std::string> calls = TestingDriver::TakeCalls();
  EXPECT_THAT(calls, Contains(HasSubstr(" of 32")));
  EXPECT_THAT(calls, Not(Contains(StartsWith("green context"))));
}

// A device of 65 groups: pairs of them are one here, and one group is left over.
TEST_F(PartitionsTest, GroupsOfADeviceThatHasMoreThanAreCounted) {
  Driver driver = driver_;
  driver.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm = {130, 2, 2};
    return CUDA_SUCCESS;
  };
  driver.cuDevSmResourceSplitByCount = SplitInTwos;
  TestingScheduler scheduler(driver, /*batches=*/false);
  scheduler.partition = kHalf;
  const auto half = scheduler.AddTenant();
  ASSERT_TRUE(half->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_EQ(half->ready.multiprocessors, 64u);
  EXPECT_EQ(NextLaunch(half.get()), 64);
}

// Its neighbour of the same allocation would be forgotten, and leave its part with the next change.
TEST_F(PartitionsTest, ASessionThatCannotBeginLeavesItsAllocationsOthersWhereTheyAre) {
  static std::atomic<bool> is_full;
  static decltype(Driver::cuMemAddressReserve) reserve;
  is_full = false;
  reserve = driver_.cuMemAddressReserve;
  Driver driver = driver_;
  driver.cuMemAddressReserve = [](CUdeviceptr* address, size_t size_bytes, size_t alignment,
                                  CUdeviceptr wanted, unsigned long long flags) {
    return is_full ? CUDA_ERROR_OUT_OF_MEMORY
                   : reserve(address, size_bytes, alignment, wanted, flags);
  };
  TestingScheduler scheduler(driver, /*batches=*/false);
  scheduler.partition = kQuarter;
  const auto first = scheduler.AddTenant("tests/pod/main");
  ASSERT_TRUE(first->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_EQ(NextLaunch(first.get()), 32);
  is_full = true;
  EXPECT_EQ(scheduler.AddTenant("tests/pod/main")->ready.ok, 0u);
  is_full = false;
  scheduler.partition = kHalf;
  const auto other = scheduler.AddTenant();
  EXPECT_EQ(other->ready.multiprocessors, 64u);
  EXPECT_EQ(NextLaunch(first.get()), 32);
}

// A namespace that has a container already wants more than there is: the next container is refused, and nobody else.
TEST_F(PartitionsTest, Malicious_ARefusedReservationIsNotLeftBehind) {
  const auto first = Add({0, 20, 0, 0});
  const auto neighbour = Add({0, 20, 0, 0});
  EXPECT_EQ(NextLaunch(neighbour.get()), 108);
  scheduler_.SetPartition(*first, {0, 90, 0, 0});
  scheduler_.namespace_id = first->order.namespace_id;
  const auto refused = Add({0, 90, 0, 0});
  EXPECT_EQ(refused->ready.ok, 0u);
  scheduler_.namespace_id = 0;
  const auto next = Add({});
  ASSERT_EQ(next->ready.ok, 1u) << next->ready.message;
  EXPECT_EQ(NextLaunch(next.get()), 84);
  EXPECT_EQ(NextLaunch(neighbour.get()), 108);
}

TEST_F(PartitionsTest, AChangeThatDoesNotFitIsMadeWhenThereIsRoom) {
  const auto large = Add({0, 60, 0, 0});
  const auto small = Add({0, 20, 0, 0});
  scheduler_.SetPartition(*small, {0, 60, 0, 0});
  const auto free = Add({});
  EXPECT_EQ(NextLaunch(free.get()), 36) << "what neither has reserved";
  EXPECT_TRUE(scheduler_.WaitUntil([&] { return scheduler_.PendingOf(*small).has_value(); }));
  EXPECT_THAT(scheduler_.PendingOf(*small),
              ::testing::Optional(HasSubstr("no room yet for its namespace's smPercent 100%, "
                                            "smReserved 60%, and its own smPercent 100%")));
  EXPECT_EQ(scheduler_.PendingOf(*large), std::nullopt) << "it has what it wants";
  scheduler_.RemoveTenant(*large);
  ASSERT_TRUE(scheduler_.WaitEnded(large->order.session_id).has_value());
  EXPECT_TRUE(Follows(free.get(), 60));
  EXPECT_TRUE(scheduler_.WaitUntil([&] { return scheduler_.PendingOf(*small) == ""; }));
}

// Which would end it, as it ends for any word that its scheduler does not know.
TEST_F(PartitionsTest, AnExecutorOfALaterReleaseSaysNothingThatItsSchedulerDoesNotKnow) {
  scheduler_.scheduler_minor = 0;
  const auto large = Add({0, 60, 0, 0});
  const auto small = Add({0, 20, 0, 0});
  scheduler_.SetPartition(*small, {0, 60, 0, 0});
  EXPECT_EQ(NextLaunch(small.get()), 60)
      << "what the other has not reserved, and it has reserved 20";
  EXPECT_EQ(scheduler_.PendingOf(*small), std::nullopt);
}

TEST_F(PartitionsTest, ReservationsAreExchangedInAnyOrder) {
  const auto one = Add({0, 60, 0, 0});
  const auto other = Add({0, 20, 0, 0});
  EXPECT_EQ(NextLaunch(one.get()), 108);
  scheduler_.SetPartition(*other, {0, 60, 0, 0});
  scheduler_.SetPartition(*one, {0, 20, 0, 0});
  EXPECT_TRUE(Follows(one.get(), 60));
  EXPECT_TRUE(Follows(other.get(), 108));
}

// None of the two changes fits without the other: the namespace has half as much, and each of its containers, too.
TEST_F(PartitionsTest, ANamespaceBecomesSmallerTogetherWithItsAllocations) {
  const auto one = Add({50, 0, 0, 20});
  scheduler_.namespace_id = one->order.namespace_id;
  const auto other = Add({50, 0, 0, 20});
  EXPECT_EQ(NextLaunch(other.get()), 40);
  scheduler_.SetPartition(*one, {25, 0, 0, 10});
  scheduler_.SetPartition(*other, {25, 0, 0, 10});
  EXPECT_TRUE(Follows(one.get(), 24));
  EXPECT_TRUE(Follows(other.get(), 24));
}

TEST_F(PartitionsTest, Malicious_WhoWantsTooMuchKeepsNobodyFromAChange) {
  const auto greedy = Add({0, 20, 0, 0});
  const auto honest = Add({0, 20, 0, 0});
  const auto free = Add({});
  EXPECT_EQ(NextLaunch(free.get()), 84);
  scheduler_.SetPartition(*greedy, {0, 99, 0, 0});
  scheduler_.SetPartition(*honest, {0, 30, 0, 0});
  EXPECT_TRUE(Follows(free.get(), 76));
}

// The scheduler tells an executor of no change while the allocation has no process there, and one that has ended may not be
// gone yet.
TEST_F(PartitionsTest, ANewProcessBringsThePolicyOfItsBeginning) {
  scheduler_.partition = kQuarter;
  const auto first = scheduler_.AddTenant("tests/pod/main");
  EXPECT_EQ(first->ready.multiprocessors, 32u);
  scheduler_.partition = kHalf;
  const auto second = scheduler_.AddTenant("tests/pod/main");
  EXPECT_EQ(second->ready.multiprocessors, 64u);
}

// On a device of 63 groups. One tenant after the other brings the executor to all the sets that it makes.
TEST_F(PartitionsTest, Malicious_WhoNeedsOneSetTooManyIsRefusedAlone) {
  Driver driver = driver_;
  driver.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm = {126, 2, 2};
    return CUDA_SUCCESS;
  };
  driver.cuDevSmResourceSplitByCount = SplitInTwos;
  TestingScheduler scheduler(driver, /*batches=*/false);
  const auto add = [&](uint32_t percent) {
    scheduler.partition = {percent, 0, 0, 0};
    auto tenant = scheduler.AddTenant();
    EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    return tenant;
  };
  const auto tenant = add(1);
  for (int percent = 2; percent < 100; ++percent) {
    scheduler.SetPartition(*tenant, {static_cast<uint32_t>(percent), 0, 0, 0});
    ASSERT_TRUE(Follows(tenant.get(), std::max(126 * percent / 200, 1) * 2)) << percent;
  }
  // 62 so far. The last group is the 63rd set; the first one is there; the 64th is the second half.
  const auto last = add(1);
  EXPECT_EQ(NextLaunch(last.get()), 2);
  const auto first = add(1);
  EXPECT_EQ(NextLaunch(first.get()), 2);
  scheduler.SetPartition(*tenant, {50, 0, 0, 0});
  ASSERT_TRUE(Follows(tenant.get(), 62));

  scheduler.partition = {1, 0, 0, 0};
  const auto refused = scheduler.AddTenant();
  ASSERT_TRUE(scheduler.WaitEnded(refused->order.session_id).has_value());
  EXPECT_EQ(refused->reader.fault(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(refused->reader.fault_text()),
                          refused->reader.fault_text_bytes()),
              HasSubstr("as many different sets of multiprocessors as there may be"));
  // Whoever runs stays where it is if the next set would be one too many.
  scheduler.SetPartition(*tenant, {49, 0, 0, 0});
  const auto next = add(100);
  EXPECT_EQ(NextLaunch(next.get()), 0);
  EXPECT_EQ(NextLaunch(tenant.get()), 62);
  EXPECT_EQ(NextLaunch(last.get()), 2);
}

// A program that divides the device itself, to get away from its limit.
TEST_F(PartitionsTest, Malicious_GreenContextsStayWithinTheLimit) {
  const auto tenant = Add({});
  EXPECT_EQ(NextLaunch(tenant.get()), 0);
  wire::GreenCreate::Request half{};
  half.context = GreenContextId{1};
  half.part = DevicePartId{1};
  half.of = wire::kWholeDevice;
  half.split = {0, 64, 1, 0};
  half.picked[0] = 1;
  ASSERT_EQ(tenant->Call<wire::GreenCreate>(half), CUDA_SUCCESS);
  ASSERT_EQ(tenant->Call<wire::GreenStreamCreate>({StreamId{5}, GreenContextId{1}, 0, 0}),
            CUDA_SUCCESS);
  EXPECT_EQ(NextLaunch(tenant.get(), 5), 64);
  scheduler_.SetPartition(*tenant, kQuarter);
  ASSERT_TRUE(Follows(tenant.get(), 32));
  EXPECT_EQ(NextLaunch(tenant.get(), 5), 32) << "made before there was a limit";
  wire::PartGet::Reply device{};
  ASSERT_EQ(tenant->Call<wire::PartGet>({wire::kWholeDevice}, &device), CUDA_SUCCESS);
  EXPECT_EQ(device.has.count, 32u) << "all that it has";
  // Parts of what it had, and the same twice.
  wire::GreenCreate::Request again{};
  again.context = GreenContextId{3};
  again.part = DevicePartId{3};
  again.of = DevicePartId{1};
  again.whole = 1;
  EXPECT_EQ(tenant->Call<wire::GreenCreate>(again), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  again.of = wire::kWholeDevice;
  wire::PartPick twice{};
  twice.what = wire::PartPick::What::kWhole;
  EXPECT_EQ(tenant->Call<wire::GreenCreate>(
                again, nullptr, {reinterpret_cast<const uint8_t*>(&twice), sizeof(twice)}),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(tenant->Call<wire::GreenCreate>(again), CUDA_SUCCESS) << "all that it has, once";
  wire::GreenCreate::Request more = half;
  more.context = GreenContextId{2};
  more.part = DevicePartId{2};
  EXPECT_EQ(tenant->Call<wire::GreenCreate>(more), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  // The next one is served.
  const auto next = Add({});
  EXPECT_EQ(NextLaunch(next.get()), 0);
}

}  // namespace
}  // namespace gpuloom::executor
