// Green contexts of sessions of the real loop, with a driver that needs no GPU.
#include "agent/executor/green_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/testing_driver.h"
#include "agent/executor/testing_peer.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using wire::DevicePartId;
using wire::Fatal;
using wire::GreenContextId;
using wire::GreenStreamKind;
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
  std::optional<CUresult> MakeStream(uint32_t stream, uint32_t context,
                                     GreenStreamKind kind = GreenStreamKind::kNonBlocking) {
    return tenant_->Call<wire::GreenStreamCreate>(
        {StreamId{stream}, GreenContextId{context}, kind, 0});
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
    return std::find(all.begin(), all.end(), "destroy green context") != all.end();
  }));
  EXPECT_THAT(all, Contains("destroy stream " + stream));
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
  EXPECT_FALSE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, create) != nullptr; },
                             std::chrono::milliseconds(50)));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, create) != nullptr; }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(GreenContextTest, TheDefaultStreamWaitsForTheContextsBlockingStreams) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(5, 1, GreenStreamKind::kDefault), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(6, 1, GreenStreamKind::kBlocking), CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  TestingDriver::Hold();
  tenant_->LaunchPlain(6, 1);
  const Ticket behind = tenant_->LaunchPlain(5, 1);
  const Ticket legacy = tenant_->LaunchPlain(0, 1);
  std::vector<std::string> calls;
  ASSERT_TRUE(tenant_->Wait([&] {
    for (std::string& call : TestingDriver::TakeCalls()) calls.push_back(std::move(call));
    return std::count_if(calls.begin(), calls.end(),
                         [](const auto& call) { return call.starts_with("launch "); }) == 3;
  }));
  std::vector<std::string> green;
  for (const std::string& call : calls) {
    if (call.starts_with("green stream ")) green.push_back(call.substr(13, call.find(" of ") - 13));
  }
  ASSERT_EQ(green.size(), 2u);  // stream 6's and 5's
  const auto waits = [&](const std::string& stream) {
    return std::count_if(calls.begin(), calls.end(), [&](const auto& call) {
      return call.starts_with("wait " + stream + " ");
    });
  };
  EXPECT_EQ(waits(green[1]), 1);
  // The legacy stream's barrier is another.
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const auto& call) { return call.starts_with("wait "); }),
            1);
  TestingDriver::Release();
  ASSERT_TRUE(tenant_->WaitDone(5, behind));
  ASSERT_TRUE(tenant_->WaitDone(0, legacy));
}

TEST_F(GreenContextTest, OnlySoManyAtATime) {
  for (uint32_t i = 1; i <= kMaxGreenContexts; ++i) {
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(i, 1)), CUDA_SUCCESS) << i;
  }
  EXPECT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(kMaxGreenContexts + 1, 1)),
            CUDA_ERROR_OUT_OF_MEMORY);
  // Letting go of them makes room at once, and again and again.
  for (uint32_t i = 0; i < 3 * kMaxGreenContexts; ++i) {
    tenant_->Post<wire::GreenDestroy>({GreenContextId{1}});
    ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS) << i;
  }
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(GreenContextTest, EndOfTheSessionDestroysAllOfIt) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(2, 2, 1)), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(5, 1), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->WaitDone(5, tenant_->LaunchPlain(5, 1)));
  TestingDriver::TakeCalls();
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  // The contexts themselves at the next quiet moment.
  std::vector<std::string> all;
  EXPECT_TRUE(tenant_->Wait([&] {
    for (std::string& call : TestingDriver::TakeCalls()) all.push_back(std::move(call));
    return std::count(all.begin(), all.end(), "destroy green context") == 2;
  }));
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const auto& call) { return call.starts_with("destroy stream "); }),
            1);
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
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

TEST_F(MaliciousGreenContextTest, PartThatIsNot) {
  tenant_->Post<wire::PartSplit>({DevicePartId{7}, 0, {0, 8, 1, 0}}, {}, 0);
  ExpectRefused(Fatal::kBadHandle);
}

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

TEST_F(MaliciousGreenContextTest, StreamOfNoContext) {
  tenant_->Post<wire::GreenStreamCreate>(
      {StreamId{5}, GreenContextId{1}, GreenStreamKind::kNonBlocking, 0}, {}, 0);
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(MaliciousGreenContextTest, SecondDefaultStream) {
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(MakeStream(5, 1, GreenStreamKind::kDefault), CUDA_SUCCESS);
  tenant_->Post<wire::GreenStreamCreate>(
      {StreamId{6}, GreenContextId{1}, GreenStreamKind::kDefault, 0}, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousGreenContextTest, KindOfStreamThatIsNone) {
  ASSERT_EQ(tenant_->Call<wire::GreenCreate>(Sixteen(1, 1)), CUDA_SUCCESS);
  tenant_->Post<wire::GreenStreamCreate>(
      {StreamId{5}, GreenContextId{1}, static_cast<GreenStreamKind>(3), 0}, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

}  // namespace
}  // namespace gpuloom::executor
