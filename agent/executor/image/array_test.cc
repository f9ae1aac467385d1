// SPDX-License-Identifier: Apache-2.0
// Arrays, views and block copies of sessions of the real loop, with a driver that needs no GPU.
#include "agent/executor/image/array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Not;
using wire::ArrayId;
using wire::Fatal;
using wire::StreamId;
using wire::Ticket;

class ArrayTest : public ::testing::Test {
 protected:
  ~ArrayTest() override { TestingDriver::Release(); }

  static wire::ArrayCreate::Request Array(uint32_t id, uint64_t width, uint64_t height,
                                          uint32_t levels = 0) {
    wire::ArrayCreate::Request request{};
    request.array = ArrayId{id};
    request.levels = levels;
    request.width = width;
    request.height = height;
    request.format = CU_AD_FORMAT_FLOAT;
    request.channels = 1;
    return request;
  }
  // `rows` of `width` bytes from the begin of `memory` into the array.
  static wire::CopyBlock::Request ToArray(uint32_t array, uint64_t memory, uint64_t width,
                                          uint64_t rows) {
    wire::CopyBlock::Request request{};
    request.copy.to.space = wire::GraphCopySpace::kArray;
    request.copy.to.array = array;
    request.copy.from.space = wire::GraphCopySpace::kDevice;
    request.copy.from.address = memory;
    request.copy.from.pitch_bytes = width;
    request.copy.from.rows = rows;
    request.copy.width_bytes = width;
    request.copy.height = rows;
    request.copy.depth = 1;
    return request;
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(ArrayTest, IsChargedAndGivenBack) {
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 1024, 1024)), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4u << 20);
  EXPECT_EQ(tenant_->Call<wire::ArrayDestroy>({ArrayId{1}}), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("destroy array"));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(ArrayTest, QuotaHolds) {
  scheduler_.quota_bytes = 4u << 20;
  EXPECT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 1024, 1025)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("make array")));
  EXPECT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 1024, 1024)), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::MemAlloc>({1}), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ArrayTest, DestroyWaitsForTheDeviceToBeIdle) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  TestingDriver::Hold();
  tenant_->Post<wire::CopyBlock>(ToArray(1, memory, 256, 16));
  const Ticket destroy = tenant_->Post<wire::ArrayDestroy>({ArrayId{1}}, {}, 3);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.FindReply(3, destroy) != nullptr; }));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, destroy) != nullptr; }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(ArrayTest, ViewsKeepTheirArray) {
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  wire::TextureCreate::Request request{};
  request.resource = wire::ViewResource::kArray;
  request.array = ArrayId{1};
  wire::TextureCreate::Reply texture{};
  ASSERT_EQ(tenant_->Call<wire::TextureCreate>(request, &texture), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::ArrayDestroy>({ArrayId{1}}), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("destroy array")));
  EXPECT_EQ(tenant_->Call<wire::TextureDestroy>({texture.texture}), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
}

TEST(ArrayBudget, ViewsTakeOfTheSessionsBudget) {
  constexpr uint64_t kViews = 16;
  const Driver& driver = TestingDriver::Reset();
  TestingScheduler scheduler(driver, /*batches=*/true, /*submit_threads=*/-1,
                             2 * kViews * kViewTakesBytes);
  auto tenant = scheduler.AddTenant();
  wire::TextureCreate::Request request{};
  request.resource = wire::ViewResource::kLinear;
  request.address = tenant->Alloc(4096);
  request.size_bytes = 4096;
  std::vector<uint64_t> made;
  wire::TextureCreate::Reply texture{};
  while (made.size() < 4 * kViews &&
         tenant->Call<wire::TextureCreate>(request, &texture) == CUDA_SUCCESS) {
    made.push_back(texture.texture);
  }
  ASSERT_FALSE(made.empty());
  EXPECT_LT(made.size(), 4 * kViews);
  EXPECT_EQ(tenant->Call<wire::TextureDestroy>({made.back()}), CUDA_SUCCESS);
  EXPECT_EQ(tenant->Call<wire::TextureCreate>(request), CUDA_SUCCESS);
  EXPECT_EQ(tenant->Call<wire::TextureCreate>(request), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ArrayTest, LevelsGoWithTheWhole) {
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16, 3)), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::ArrayLevel>({ArrayId{1}, ArrayId{2}, 1}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::ArrayLevel>({ArrayId{1}, ArrayId{3}, 99}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(tenant_->Call<wire::ArrayDestroy>({ArrayId{1}}), CUDA_SUCCESS);
  tenant_->Post<wire::SurfaceCreate>({ArrayId{2}}, {}, 0);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
}

TEST_F(ArrayTest, EndOfTheSessionReturnsAllOfIt) {
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(2, 64, 16, 2)), CUDA_SUCCESS);
  wire::SurfaceCreate::Reply surface{};
  ASSERT_EQ(tenant_->Call<wire::SurfaceCreate>({ArrayId{1}}, &surface), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("destroy surface"));
  // The arrays themselves at the next quiet moment.
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
}

// What the tenant has let go of waits for its work, and it is gone before that.
TEST_F(ArrayTest, ViewsWhoseEndWaitsEndWithTheSession) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  wire::TextureCreate::Request request{};
  request.resource = wire::ViewResource::kArray;
  request.array = ArrayId{1};
  wire::TextureCreate::Reply texture{};
  wire::SurfaceCreate::Reply surface{};
  ASSERT_EQ(tenant_->Call<wire::TextureCreate>(request, &texture), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::SurfaceCreate>({ArrayId{1}}, &surface), CUDA_SUCCESS);
  TestingDriver::Hold();
  tenant_->Post<wire::CopyBlock>(ToArray(1, memory, 256, 16));
  tenant_->Post<wire::TextureDestroy>({texture.texture}, {}, 1);
  tenant_->Post<wire::SurfaceDestroy>({surface.surface}, {}, 2);
  tenant_->Post<wire::ArrayDestroy>({ArrayId{1}}, {}, 3);
  // Answered when all of them have been read.
  ASSERT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*tenant_);
  // Told of after that, so the end has begun.
  const auto next = scheduler_.AddTenant();
  TestingDriver::Release();
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_THAT(TestingDriver::TakeCalls(),
              AllOf(Contains("destroy surface"), Contains("destroy texture")));
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
}

TEST_F(ArrayTest, BlocksOfOnesOwnMemoryAreCopied) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  tenant_->Post<wire::CopyBlock>(ToArray(1, memory, 256, 16));
  const Ticket last = tenant_->Post<wire::FillBlock>({StreamId{0}, 0, {memory, 64, 16, 64, 7, 4}});
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

class MaliciousArrayTest : public ArrayTest {
 protected:
  // The session ends with this reason, and the next tenant is served.
  void ExpectRefused(Fatal reason) {
    EXPECT_TRUE(tenant_->WaitFatal(reason));
    const auto neighbour = scheduler_.AddTenant();
    EXPECT_NE(neighbour->Alloc(1), 0u);
  }
};

TEST_F(MaliciousArrayTest, BlockBeyondItsMemory) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 64)), CUDA_SUCCESS);
  tenant_->Post<wire::CopyBlock>(ToArray(1, memory, 256, 64));
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(MaliciousArrayTest, BlockWhoseSpanOverflows) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 64)), CUDA_SUCCESS);
  wire::CopyBlock::Request request = ToArray(1, memory, 256, 2);
  request.copy.depth = 3;
  request.copy.from.pitch_bytes = uint64_t{1} << 63;
  request.copy.from.rows = 2;
  tenant_->Post<wire::CopyBlock>(request);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(MaliciousArrayTest, BlockWithRowsOverOneAnother) {
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_EQ(tenant_->Call<wire::ArrayCreate>(Array(1, 64, 64)), CUDA_SUCCESS);
  wire::CopyBlock::Request request = ToArray(1, memory, 256, 4);
  request.copy.from.pitch_bytes = 0;
  tenant_->Post<wire::CopyBlock>(request);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(MaliciousArrayTest, FillBeyondItsMemory) {
  const uint64_t memory = tenant_->Alloc(4096);
  tenant_->Post<wire::FillBlock>({StreamId{0}, 0, {memory, 1u << 30, 4, 64, 7, 1}});
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(MaliciousArrayTest, ArrayOfNobody) {
  tenant_->Post<wire::CopyBlock>(ToArray(77, tenant_->Alloc(4096), 256, 4));
  ExpectRefused(Fatal::kBadHandle);
}

// What is there, and whose it is, is as little asked as of the pointers that a kernel is given.
TEST_F(MaliciousArrayTest, TexturesOfAnyAddressHarmNobody) {
  const auto neighbour = scheduler_.AddTenant();
  wire::TextureCreate::Request request{};
  request.resource = wire::ViewResource::kLinear;
  request.format = CU_AD_FORMAT_FLOAT;
  request.channels = 1;
  for (const uint64_t address : {tenant_->Alloc(4096), neighbour->Alloc(4096), ~uint64_t{0}}) {
    for (const uint64_t size_bytes : {uint64_t{4096}, uint64_t{1} << 40, ~uint64_t{0}}) {
      request.address = address;
      request.size_bytes = size_bytes;
      EXPECT_EQ(tenant_->Call<wire::TextureCreate>(request), CUDA_SUCCESS);
    }
  }
  request.resource = wire::ViewResource::kPitched;
  request.width = request.height = request.pitch_bytes = ~uint64_t{0};
  EXPECT_EQ(tenant_->Call<wire::TextureCreate>(request), CUDA_SUCCESS);
  EXPECT_EQ(neighbour->Call<wire::TextureCreate>(request), CUDA_SUCCESS);
}

TEST_F(MaliciousArrayTest, TextureOfAnUnknownKind) {
  wire::TextureCreate::Request request{};
  request.resource = static_cast<wire::ViewResource>(9);
  tenant_->Post<wire::TextureCreate>(request, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(MaliciousArrayTest, ForeignTextureCannotBeDestroyed) {
  const auto neighbour = scheduler_.AddTenant();
  ASSERT_EQ(neighbour->Call<wire::ArrayCreate>(Array(1, 64, 16)), CUDA_SUCCESS);
  wire::SurfaceCreate::Reply surface{};
  ASSERT_EQ(neighbour->Call<wire::SurfaceCreate>({ArrayId{1}}, &surface), CUDA_SUCCESS);
  tenant_->Post<wire::SurfaceDestroy>({surface.surface}, {}, 0);
  ExpectRefused(Fatal::kBadHandle);
  EXPECT_EQ(neighbour->Call<wire::SurfaceDestroy>({surface.surface}), CUDA_SUCCESS);
}

TEST_F(MaliciousArrayTest, TensorMapOfRankSix) {
  wire::TensorMapEncode::Request request{};
  request.rank = 6;
  tenant_->Post<wire::TensorMapEncode>(request, {}, 0);
  ExpectRefused(Fatal::kBadArgument);
}

}  // namespace
}  // namespace gpuloom::executor
