// SPDX-License-Identifier: Apache-2.0
// Green contexts of sessions of the real loop, with a driver that needs no GPU.
#include "agent/executor/device/green_context.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/stream/stream_set.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::DevicePartId;
using wire::Fatal;
using wire::GreenContextId;
using wire::StreamId;
using wire::Ticket;

class GreenContextTest : public ::testing::Test {
 protected:
  ~GreenContextTest() override { TestingDriver::Release(); }

  // Group `group` of a split of `of` into parts of 16.
  static wire::GreenCreate::Request Sixteen(uint32_t context, uint32_t part, uint32_t group = 0,
                                            uint32_t of = 0) {
    wire::GreenCreate::Request request{};
    request.context = GreenContextId{context};
    request.part = DevicePartId{part};
    request.of = DevicePartId{of};
    request.split = {0, 16, group + 1, 0};
    request.picked[group / 64] = uint64_t{1} << group % 64;
    return request;
  }
  // A launch that has come to the device and does not end before Release. The moment in which
  // its kernel was loaded may hold it back for a while.
  void KeepDeviceBusy() {
    TestingDriver::Hold();
    tenant_->LaunchPlain(0, 1);
    ASSERT_TRUE(tenant_->Wait([] {
      const std::vector<std::string> calls = TestingDriver::TakeCalls();
      return std::any_of(calls.begin(), calls.end(),
                         [](const auto& call) { return call.starts_with("launch "); });
    }));
  }
  std::optional<CUresult> MakeStream(uint32_t stream, uint32_t context) {
    return tenant_->Call<wire::GreenStreamCreate>(
        {StreamId{stream}, GreenContextId{context}, 0, 0});
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, /*batches=*/false};  // each launch is one call
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(GreenContextTest, SplitsAreTheDrivers) {
  wire::PartGet::Reply device{};
  ASSERT_EQ(tenant_->Call<wire::PartGet>({wire::kWholeDevice}, &device), CUDA_SUCCESS);
  EXPECT_EQ(device.has.count, 132u);
  wire::PartSplit::Reply split{};
  ASSERT_EQ(tenant_->Call<wire::PartSplit>({wire::kWholeDevice, 0, {0, 30, 3, 0}}, &split),
            CUDA_SUCCESS);
  EXPECT_EQ(split.groups, 3u);
  EXPECT_EQ(split.group.count, 32u);
  EXPECT_EQ(split.remaining.count, 36u);
  EXPECT_EQ(tenant_->Call<wire::PartSplit>({wire::kWholeDevice, 0, {0, 133, 1, 0}}),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_F(GreenContextTest, StreamsBeyondAFewArePaidForAsOthersAre) {
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  const uint64_t before_bytes = scheduler_.memory_in_use();
  for (uint32_t stream = 1; stream <= kFreeStreams; ++stream) {
    ASSERT_EQ(MakeStream(stream, 1), CUDA_SUCCESS);
  }
  EXPECT_EQ(scheduler_.memory_in_use(), before_bytes);
  ASSERT_EQ(MakeStream(kFreeStreams + 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), before_bytes + kStreamTakesBytes);
  scheduler_.quota_bytes = before_bytes + kStreamTakesBytes;
  EXPECT_EQ(MakeStream(kFreeStreams + 2, 1), CUDA_ERROR_OUT_OF_MEMORY);
  tenant_->Post<wire::StreamDestroy>({StreamId{kFreeStreams + 1}});
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == before_bytes; }));
  EXPECT_EQ(MakeStream(kFreeStreams + 2, 1), CUDA_SUCCESS);
}

TEST_F(GreenContextTest, LaunchesGoToStreamsOfTheContext) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  wire::GreenCreate::Reply made{};
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1), &made), CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 16u);
  ASSERT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  Ticket last{};
  // Many of one kind, which go by graphs in other streams.
  for (int i = 0; i < 100; ++i) last = tenant_->LaunchPlain(5, 1);
  ASSERT_TRUE(tenant_->WaitDone(5, last));
  const std::vector<std::string> calls = TestingDriver::TakeCalls();
  std::string stream;
  for (const std::string& call : calls) {
    EXPECT_FALSE(call.starts_with("graph ")) << call;
    if (call.starts_with("green stream ")) {
      stream = call.substr(13, call.find(" of ") - 13);
      EXPECT_TRUE(call.ends_with(" of 16")) << call;
    }
  }
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "launch " + stream), 100);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);

  tenant_->Post<wire::StreamDestroy>({StreamId{5}});
  tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
  std::vector<std::string> all;
  EXPECT_TRUE(tenant_->Wait([&] {
    for (std::string& call : TestingDriver::TakeCalls()) all.push_back(std::move(call));
    return std::find(all.begin(), all.end(), "destroy stream " + stream) != all.end();
  }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(GreenContextTest, PartsOfContextsAreDividedFurther) {
  wire::GreenCreate::Request request = Sixteen(1, 1);
  request.picked[0] = 0;
  request.remaining = 1;
  wire::GreenCreate::Reply made{};
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(request, &made), CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 116u);
  tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});  // its part stays known
  wire::PartSplit::Reply split{};
  ASSERT_EQ(tenant_->Call<wire::PartSplit>({DevicePartId{1}, 0, {0, 100, 1, 0}}, &split),
            CUDA_SUCCESS);
  EXPECT_EQ(split.remaining.count, 12u);
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 2, 3, 1), &made), CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 16u);
  request = {};
  request.context = GreenContextId{2};
  request.part = DevicePartId{3};
  request.whole = 1;
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(request, &made), CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 132u);
}

TEST_F(GreenContextTest, MakingWaitsForTheDeviceToBeIdle) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_NO_FATAL_FAILURE(KeepDeviceBusy());
  const Ticket create = tenant_->Post<wire::GreenCreate>(Sixteen(1, 1), {}, 3);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.FindReply(3, create) != nullptr; }));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, create) != nullptr; }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(GreenContextTest, ItsStreamsWaitForNobody) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(6, 1), CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  TestingDriver::Hold();
  std::vector<std::pair<uint32_t, Ticket>> launched;
  for (const uint32_t stream : {6, 5, 0, 6}) {
    launched.emplace_back(stream, tenant_->LaunchPlain(stream, 1));
  }
  std::vector<std::string> calls;
  ASSERT_TRUE(tenant_->Wait([&] {
    for (std::string& call : TestingDriver::TakeCalls()) calls.push_back(std::move(call));
    return std::count_if(calls.begin(), calls.end(),
                         [](const auto& call) { return call.starts_with("launch "); }) == 4;
  }));
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const auto& call) { return call.starts_with("wait "); }),
            0);
  TestingDriver::Release();
  for (const auto& [stream, ticket] : launched) ASSERT_TRUE(tenant_->WaitDone(stream, ticket));
}

// The driver keeps the memory of a context that is destroyed.
TEST_F(GreenContextTest, IsChargedUntilTheSessionEnds) {
  const uint64_t before = scheduler_.memory_in_use();
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), before + kGreenContextBytes);
  scheduler_.quota_bytes = before + kGreenContextBytes;
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(2, 1)), CUDA_ERROR_OUT_OF_MEMORY);
  // The same part again takes nothing.
  for (int i = 0; i < 20; ++i) {
    tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  }
  tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 2, 1)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(scheduler_.memory_in_use(), before + kGreenContextBytes);
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(GreenContextTest, WhatAProgramPutsTogether) {
  const auto create = [&](uint32_t context, const std::vector<wire::PartPick>& more,
                          wire::GreenCreate::Reply* made) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(more.data());
    return tenant_->Call<wire::GreenCreate>(
        Sixteen(context, context), made,
        std::vector<uint8_t>(bytes, bytes + more.size() * sizeof(wire::PartPick)));
  };
  using What = wire::PartPick::What;
  wire::GreenCreate::Reply made{};
  ASSERT_EQ(create(1, {{What::kGroup, 0, {0, 16, 1, 0}}}, &made), CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 32u) << "the same group again";
  ASSERT_EQ(
      create(2, {{What::kGroup, 1, {0, 24, 2, 0}}, {What::kRemaining, 0, {0, 120, 1, 0}}}, &made),
      CUDA_SUCCESS);
  EXPECT_EQ(made.has.count, 16u + 24u + 12u);
  EXPECT_EQ(create(3, {{What::kGroup, 8, {0, 24, 9, 0}}}, &made),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
      << "there are five";
}

// A program can write anything into a CUdevResource.
TEST_F(GreenContextTest, PartsThatAreNoneAreAnswers) {
  EXPECT_EQ(tenant_->Call<wire::PartGet>({DevicePartId{7}}),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(tenant_->Call<wire::PartGet>({DevicePartId{UINT32_MAX}}),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(tenant_->Call<wire::PartSplit>({DevicePartId{7}, 0, {0, 8, 1, 0}}),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1, 0, 7)),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(MakeStream(5, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
}

TEST_F(GreenContextTest, OnlySoManyAtATime) {
  auto made = [calls = 0L]() mutable {
    const auto taken = TestingDriver::TakeCalls();
    calls += std::count(taken.begin(), taken.end(), "green context of 16");
    return calls;
  };
  for (uint32_t i = 1; i <= kMaxGreenContexts; ++i) {
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(i, 1)), CUDA_SUCCESS) << i;
  }
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(kMaxGreenContexts + 1, 1)),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(made(), long{kMaxGreenContexts});
  // Letting go of them makes room at once, and again and again.
  for (uint32_t i = 0; i < 3 * kMaxGreenContexts; ++i) {
    tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS) << i;
  }
  EXPECT_EQ(made(), long{kMaxGreenContexts});
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// What the driver has made stays for the sessions to come, and is bounded.
TEST_F(GreenContextTest, TheNextSessionGetsTheSameOnes) {
  const auto part = [](uint32_t which) {
    wire::GreenCreate::Request request = Sixteen(1, 1 + which);
    request.split.min_count = 1 + which % 128;
    request.split.groups = 1 + which / 128;
    return request;
  };
  const auto next = [&] {
    scheduler_.RemoveTenant(*tenant_);
    ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
    tenant_ = scheduler_.AddTenant();
  };
  // One tenant has its share made, and the last are for those that had few.
  const auto share = [](uint32_t made) {
    return made < kMaxMadeGreens - kKeptForFew ? kMaxMadeOfTenant : kFewMade;
  };
  for (uint32_t i = 0; i < kMaxMadeGreens; ++i) {
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(part(i)), CUDA_SUCCESS) << i;
    if (i == 0) {
      ASSERT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
      tenant_->Post<wire::StreamDestroy>({StreamId{5}});
    }
    tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
    if ((i + 1) % share(i) == 0) {
      EXPECT_EQ(tenant_->Call<wire::GreenCreate>(part(300)), CUDA_ERROR_OUT_OF_MEMORY);
      ASSERT_NO_FATAL_FAILURE(next());
    }
  }
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(part(300)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
  TestingDriver::TakeCalls();
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(part(17)), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), kGreenContextBytes);
  for (const std::string& call : TestingDriver::TakeCalls()) {
    EXPECT_FALSE(call.starts_with("green context")) << call;
  }
}

TEST_F(GreenContextTest, ItsStreamsEndWithTheSession) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->WaitDone(5, tenant_->LaunchPlain(5, 1)));
  TestingDriver::TakeCalls();
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  const std::vector<std::string> all = TestingDriver::TakeCalls();
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const auto& call) { return call.starts_with("destroy stream "); }),
            1);
}

class MaliciousGreenContextTest : public GreenContextTest {
 protected:
  // The session ends with this reason, and the next tenant is served.
  void ExpectRefused(Fatal reason) {
    EXPECT_TRUE(tenant_->WaitFatal(reason));
    const auto neighbour = scheduler_.AddTenant();
    EXPECT_EQ(neighbour->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  }
};

TEST_F(MaliciousGreenContextTest, PartBeyondTheTable) {
  tenant_->Post<wire::GreenCreate>(Sixteen(1, wire::kMaxDeviceParts), {}, 0);
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(MaliciousGreenContextTest, MoreGroupsThanThereIsRoomFor) {
  tenant_->Post<wire::PartSplit>({wire::kWholeDevice, 0, {0, 8, wire::kMaxSplitGroups + 1, 0}}, {},
                                 0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousGreenContextTest, GroupBeyondTheSplit) {
  wire::GreenCreate::Request request = Sixteen(1, 1);
  request.picked[3] = uint64_t{1} << 63;
  tenant_->Post<wire::GreenCreate>(request, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousGreenContextTest, ContextOfNothing) {
  wire::GreenCreate::Request request = Sixteen(1, 1);
  request.picked[0] = 0;
  tenant_->Post<wire::GreenCreate>(request, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousGreenContextTest, ContextTwice) {
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  tenant_->Post<wire::GreenCreate>(Sixteen(1, 1), {}, 0);
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(MaliciousGreenContextTest, DestroyedWhileItIsMade) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_NO_FATAL_FAILURE(KeepDeviceBusy());
  tenant_->Post<wire::GreenCreate>(Sixteen(1, 1), {}, 0);
  tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
  TestingDriver::Release();
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(MaliciousGreenContextTest, HalfAPick) {
  tenant_->Post<wire::GreenCreate>(Sixteen(1, 1), std::vector<uint8_t>(sizeof(wire::PartPick) + 1),
                                   0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousGreenContextTest, PickBeyondItsSplit) {
  const wire::PartPick pick = {wire::PartPick::What::kGroup, 2, {0, 16, 2, 0}};
  const auto* bytes = reinterpret_cast<const uint8_t*>(&pick);
  tenant_->Post<wire::GreenCreate>(Sixteen(1, 1), std::vector<uint8_t>(bytes, bytes + sizeof(pick)),
                                   0);
  ExpectRefused(Fatal::kBadArgument);
}

}  // namespace
}  // namespace gpuloom::executor
