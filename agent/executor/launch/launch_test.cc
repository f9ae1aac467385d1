// SPDX-License-Identifier: Apache-2.0
// Launches with attributes, lists of kernels, limits and links: what tenants may ask, and what ends
// their session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/stream/stream_set.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using wire::Fatal;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::LinkId;
using wire::StreamId;
using wire::Ticket;

class LaunchTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx)); }

  static wire::LaunchEx::Request Request(uint32_t set) {
    wire::LaunchEx::Request request{};
    request.kernel = KernelId{1};
    for (int i = 0; i < 3; ++i) request.grid[i] = request.block[i] = 1;
    request.attributes.set = set;
    return request;
  }

  void ExpectEnds(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal))
        << "ended with: " << wire::FatalText(tenant_->reader.fatal());
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->drained, 1u);
    auto honest = scheduler_.AddTenant();
    ASSERT_TRUE(honest->LoadKernel(1, 1, "k", kEmptyPtx));
    EXPECT_TRUE(honest->WaitDone(0, honest->LaunchPlain(0, 1)));
  }

  // Text in the arena; its address.
  HostPtr Services(std::string_view text) {
    const uint64_t address = tenant_->order.host_range_begin + (2u << 20);
    std::memcpy(reinterpret_cast<void*>(address), text.data(), text.size());
    return HostPtr{address};
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(LaunchTest, AttributesReachTheDriver) {
  wire::LaunchEx::Request request =
      Request(1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE | 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION |
              1u << CU_LAUNCH_ATTRIBUTE_PRIORITY);
  request.attributes.cooperative = 1;
  const Ticket last = tenant_->Post<wire::LaunchEx>(request, PlainParams());
  ASSERT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains(::testing::StartsWith("launch 3 ")));
  wire::OccupancyClusters::Reply reply{};
  wire::OccupancyClusters::Request question{};
  question.kernel = KernelId{1};
  ASSERT_EQ(tenant_->Call<wire::OccupancyClusters>(question, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.value, 16);
}

// Whatever it asks for: its streams, its launches and its graphs' nodes.
TEST_F(LaunchTest, Malicious_PrioritiesStayInTheBandOfTheClass) {
  control::ShareTerms terms{};
  terms.priority = 3;
  scheduler_.shares = terms;
  auto low = scheduler_.AddTenant();
  ASSERT_TRUE(low->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::TakePriorities();
  ASSERT_EQ(low->Call<wire::StreamCreate>({StreamId{1}, 1, -5}), CUDA_SUCCESS);
  wire::LaunchEx::Request request = Request(1u << CU_LAUNCH_ATTRIBUTE_PRIORITY);
  request.stream = StreamId{1};
  request.attributes.priority = -100;
  const auto launch = [&] {
    return low->WaitDone(1, low->Post<wire::LaunchEx>(request, PlainParams()));
  };
  TestingGraph graph;
  graph.AddKernel(1, PlainParams(), {{CU_LAUNCH_ATTRIBUTE_PRIORITY, 0, {0xfb, 0xff, 0xff, 0xff}}});
  graph.AddKernel(1, PlainParams());
  const auto instantiate = [&](uint32_t id) {
    return low->Call<wire::GraphInstantiate>(
        {wire::GraphId{id}, wire::kGraphUseNodePriority, HostPtr{0}, 0}, nullptr, graph.Block());
  };
  ASSERT_TRUE(launch());
  ASSERT_EQ(instantiate(1), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(-1, -1, -1, 0));
  // The policy changes: the stream that was made before, too.
  terms.priority = 1;
  scheduler_.SetShares(*low, terms);
  ASSERT_TRUE(scheduler_.Reclaim(*low));  // comes behind it
  ASSERT_TRUE(launch());
  ASSERT_EQ(instantiate(2), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(-5, -5, -5, -4));
  // So do graphs, each once, before their next launch.
  const auto launch_graph = [&](uint32_t id) {
    return low->WaitDone(1, low->Post<wire::GraphLaunch>({wire::GraphId{id}, StreamId{1}}));
  };
  ASSERT_TRUE(launch_graph(1));
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(-5, -4));
  ASSERT_TRUE(launch_graph(1));
  ASSERT_TRUE(launch_graph(2));
  EXPECT_THAT(TestingDriver::TakePriorities(), IsEmpty());
  terms.priority = 3;
  scheduler_.SetShares(*low, terms);
  ASSERT_TRUE(scheduler_.Reclaim(*low));
  ASSERT_TRUE(launch_graph(2));
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(-1, 0));
  // A graph that goes by its stream's priority is not made again.
  ASSERT_EQ(low->Call<wire::GraphInstantiate>({wire::GraphId{3}, 0, HostPtr{0}, 0}, nullptr,
                                              graph.Block()),
            CUDA_SUCCESS);
  TestingDriver::TakePriorities();
  TestingDriver::TakeCalls();
  terms.priority = 2;
  scheduler_.SetShares(*low, terms);
  ASSERT_TRUE(scheduler_.Reclaim(*low));
  ASSERT_TRUE(launch_graph(3));
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("instantiate")));
  EXPECT_EQ(low->reader.async_error_count(), 0u);
}

// Whoever always has more to do in a stream would keep it, and so the band of a class that it is no longer in.
TEST_F(LaunchTest, Malicious_AStreamThatIsNeverIdleChangesItsBand) {
  control::ShareTerms terms{};
  terms.priority = 1;
  scheduler_.shares = terms;
  auto tenant = scheduler_.AddTenant();
  ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant->CreateStream(1, true));
  ASSERT_TRUE(tenant->CreateStream(2, true));
  const auto has_launched = [] { return TestingDriver::WasCalled("launch"); };
  TestingDriver::TakePriorities();
  TestingDriver::Hold();
  tenant->LaunchPlain(1, 1);
  EXPECT_TRUE(tenant->Wait(has_launched));
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(-4));
  TestingDriver::TakeCalls();
  terms.priority = 3;
  scheduler_.SetShares(*tenant, terms);
  ASSERT_TRUE(scheduler_.Reclaim(*tenant));  // comes behind it
  tenant->LaunchPlain(1, 1);
  EXPECT_TRUE(tenant->Wait(has_launched)) << "with which it is noticed";
  TestingDriver::TakeCalls();
  const Ticket later = tenant->LaunchPlain(1, 1);
  EXPECT_TRUE(tenant->Never(has_launched)) << "the first one has not ended";
  EXPECT_THAT(TestingDriver::TakePriorities(), IsEmpty());
  // Its other streams need not wait for this one.
  tenant->LaunchPlain(2, 1);
  EXPECT_TRUE(tenant->Wait(has_launched));
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(0));
  TestingDriver::Release();
  EXPECT_TRUE(tenant->WaitDone(1, later));
  EXPECT_THAT(TestingDriver::TakePriorities(), ElementsAre(0));
}

TEST_F(LaunchTest, Malicious_UnknownAttribute) {
  tenant_->Post<wire::LaunchEx>(Request(1u << 31), PlainParams());
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, Malicious_ParametersOfAnotherSize) {
  tenant_->Post<wire::LaunchEx>(Request(0));
  ExpectEnds(Fatal::kRecordSize);
}

TEST_F(LaunchTest, Malicious_UnknownClusterQuestion) {
  wire::OccupancyClusters::Request question{};
  question.kernel = KernelId{1};
  question.question = wire::ClusterQuestion{7};
  tenant_->Post<wire::OccupancyClusters>(question, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, Malicious_ParametersBeyondTheLast) {
  tenant_->Post<wire::KernelParams>({KernelId{1}, 2}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, KernelsAreListed) {
  wire::LibraryKernels::Reply reply{};
  ASSERT_EQ(tenant_->Call<wire::LibraryKernels>({LibraryId{1}, 0}, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.kernel_count, 1u);
  EXPECT_EQ(reply.names_bytes, sizeof("found"));
  // Beyond the end there is nothing, and no harm.
  EXPECT_EQ(tenant_->Call<wire::LibraryKernels>({LibraryId{1}, 4000000000u}, &reply), CUDA_SUCCESS);
}

TEST_F(LaunchTest, LimitsOnlyGrowAndAreBounded) {
  EXPECT_EQ(tenant_->Call<wire::ContextSetLimit>({CU_LIMIT_STACK_SIZE, 0, 4096}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::ContextSetLimit>({CU_LIMIT_STACK_SIZE, 0, 2048}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::ContextSetLimit>({CU_LIMIT_STACK_SIZE, 0, uint64_t{1} << 40}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(tenant_->Call<wire::ContextSetLimit>({CU_LIMIT_MALLOC_HEAP_SIZE, 0, uint64_t{1} << 40}),
            CUDA_ERROR_OUT_OF_MEMORY);
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "limit 0 4096"), 1);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "limit 0 2048"), 0);
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// TestingDriver's device has 9 multiprocessors of 9 threads.
constexpr uint64_t kThreads = 81;

TEST_F(LaunchTest, WhoMakesTheContextLargerPaysForIt) {
  const auto set = [this](CUlimit limit, uint64_t value) {
    return tenant_->Call<wire::ContextSetLimit>({static_cast<uint32_t>(limit), 0, value});
  };
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  uint64_t paid_bytes = 3072 * kThreads;
  EXPECT_EQ(scheduler_.memory_in_use(), paid_bytes);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(set(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), paid_bytes);
  EXPECT_EQ(set(CU_LIMIT_MALLOC_HEAP_SIZE, 16u << 20), CUDA_SUCCESS);
  paid_bytes += 8u << 20;
  EXPECT_EQ(scheduler_.memory_in_use(), paid_bytes);

  scheduler_.quota_bytes = paid_bytes;
  (void)TestingDriver::TakeCalls();
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 8192), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set(CU_LIMIT_PRINTF_FIFO_SIZE, 16u << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(TestingDriver::TakeCalls().empty()) << "the driver was not asked";
  // The context stays as large as it is.
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id));
  EXPECT_EQ(scheduler_.memory_in_use(), paid_bytes);
}

TEST_F(LaunchTest, LocalMemoryIsPaidForBeforeAKernelCanBeLaunched) {
  const auto get = [this](uint32_t library, uint32_t kernel) {
    const uint8_t name[] = {'k'};
    return tenant_->Call<wire::KernelGet>({LibraryId{library}, KernelId{kernel}}, nullptr, name);
  };
  const auto load = [this](uint32_t library, const char* more) {
    return tenant_->LoadLibrary(library, std::string(kEmptyPtx) + more);
  };
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  TestingDriver::SetLocalBytes(5120);
  ASSERT_EQ(load(2, "// a"), CUDA_SUCCESS);
  scheduler_.quota_bytes = 4096 * kThreads - 1;
  EXPECT_EQ(get(2, 2), CUDA_ERROR_OUT_OF_MEMORY);
  scheduler_.quota_bytes = 4096 * kThreads;
  EXPECT_EQ(get(2, 2), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4096 * kThreads);
  TestingDriver::SetLocalBytes(4096);
  ASSERT_EQ(load(3, "// b"), CUDA_SUCCESS);
  EXPECT_EQ(get(3, 3), CUDA_SUCCESS) << "there is as much already";
  EXPECT_EQ(scheduler_.memory_in_use(), 4096 * kThreads);
}

TEST_F(LaunchTest, StreamsBeyondAFewArePaidForWhileTheyLast) {
  for (uint32_t stream = 1; stream <= kFreeStreams; ++stream) {
    ASSERT_TRUE(tenant_->CreateStream(stream, true));
  }
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  ASSERT_TRUE(tenant_->CreateStream(kFreeStreams + 1, true));
  EXPECT_EQ(scheduler_.memory_in_use(), kStreamTakesBytes);
  scheduler_.quota_bytes = kStreamTakesBytes;
  EXPECT_FALSE(tenant_->CreateStream(kFreeStreams + 2, true));
  tenant_->Post<wire::StreamDestroy>({wire::StreamId{kFreeStreams + 1}});
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
  EXPECT_TRUE(tenant_->CreateStream(kFreeStreams + 2, true));
}

TEST_F(LaunchTest, Malicious_LimitThatNobodyMaySet) {
  tenant_->Post<wire::ContextSetLimit>({CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0, 1}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, ALinkIsMadeReadAndDestroyed) {
  const wire::LinkOption option{CU_JIT_OPTIMIZATION_LEVEL, 3};
  const std::span<const uint8_t> options(reinterpret_cast<const uint8_t*>(&option), sizeof(option));
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}, nullptr, options), CUDA_SUCCESS);
  const HostPtr text = Services("part");
  const wire::LinkAdd::Request add = {LinkId{1}, CU_JIT_INPUT_PTX, text, 4, 0, 0};
  ASSERT_EQ(tenant_->Call<wire::LinkAdd>(add), CUDA_SUCCESS);
  wire::LinkComplete::Reply reply{};
  ASSERT_EQ(tenant_->Call<wire::LinkComplete>({LinkId{1}}, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.image_bytes, 5000u);
  EXPECT_EQ(tenant_->Call<wire::LinkRead>({LinkId{1}, 0, 4999}), CUDA_SUCCESS);
  // A program's mistakes: an answer, not the end.
  EXPECT_EQ(tenant_->Call<wire::LinkAdd>(add), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(tenant_->Call<wire::LinkComplete>({LinkId{1}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(tenant_->Call<wire::LinkDestroy>({LinkId{1}}), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("unlink"));
}

TEST_F(LaunchTest, Malicious_WhatTheLinkerMightNotSurviveNeverReachesIt) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  const auto add = [&](CUjitInputType type, std::string_view bytes) {
    const HostPtr place = Services("part");
    std::memcpy(reinterpret_cast<void*>(place), bytes.data(), bytes.size());
    return tenant_->Call<wire::LinkAdd>(
        {LinkId{1}, static_cast<uint32_t>(type), place, bytes.size(), 0, 0});
  };
  constexpr std::string_view kFatbin("\x50\xed\x55\xba\1\0\x10\0//77", 12);
  for (const auto type :
       {CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_LIBRARY}) {
    for (const std::string_view bytes : {std::string_view("!<arch>\nmore"), kFatbin,
                                         std::string_view("\x7f"
                                                          "ELF..."),
                                         std::string_view(".version 8.0")}) {
      EXPECT_EQ(add(type, bytes), CUDA_ERROR_INVALID_IMAGE) << type << ": " << bytes;
    }
  }
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, kFatbin), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, "part"), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::LinkComplete>({LinkId{1}}), CUDA_SUCCESS);
}

// NVIDIA's compiler crashes otherwise.
TEST_F(LaunchTest, ALinkHasAThreadOfItsOwn) {
  const HostPtr text = Services("part");
  for (const uint32_t id : {1, 2, 3, 4}) {
    ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{id}}), CUDA_SUCCESS);
  }
  for (int turn = 0; turn < 20; ++turn) {
    for (const uint32_t id : {3, 1, 4, 2}) {
      ASSERT_EQ(tenant_->Call<wire::LinkAdd>({LinkId{id}, CU_JIT_INPUT_PTX, text, 4, 0, 0}),
                CUDA_SUCCESS);
    }
    ASSERT_EQ(tenant_->LoadLibrary(7, kEmptyPtx), CUDA_SUCCESS);
    ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{7}}), CUDA_SUCCESS);
  }
  ASSERT_EQ(tenant_->Call<wire::LinkComplete>({LinkId{2}}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::LinkDestroy>({LinkId{2}}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::LinkDestroy>({LinkId{1}}), CUDA_SUCCESS);
  const uint64_t session = tenant_->order.session_id;
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(session).has_value());
  EXPECT_EQ(TestingDriver::foreign_link_calls(), 0);
}

TEST_F(LaunchTest, LinksEndWithTheSession) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("unlink"));
}

TEST_F(LaunchTest, Malicious_LinkReadBeforeItIsComplete) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  tenant_->Post<wire::LinkRead>({LinkId{1}, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, Malicious_LinkInputOutsideTheArena) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  tenant_->Post<wire::LinkAdd>(
      {LinkId{1}, CU_JIT_INPUT_PTX, HostPtr{tenant_->order.host_range_begin - 8}, 16, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(LaunchTest, Malicious_LinkOptionWithAPointer) {
  const wire::LinkOption option{CU_JIT_INFO_LOG_BUFFER, 4096};
  tenant_->Post<wire::LinkCreate>({LinkId{1}},
                                  {reinterpret_cast<const uint8_t*>(&option), sizeof(option)}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, Malicious_MoreLinkOptionsThanThereAre) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  tenant_->Post<wire::LinkAdd>({LinkId{1}, CU_JIT_INPUT_PTX, Services("part"), 4, 5, 0}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(LaunchTest, Malicious_UnknownLink) {
  tenant_->Post<wire::LinkComplete>({LinkId{9}}, {}, 0);
  ExpectEnds(Fatal::kBadHandle);
}

}  // namespace
}  // namespace gpuloom::executor
