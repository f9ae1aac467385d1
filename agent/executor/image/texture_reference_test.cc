// SPDX-License-Identifier: Apache-2.0
// Texture and surface references of sessions of the real loop, with a driver that needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "agent/executor/testing/references.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using wire::ArrayId;
using wire::Fatal;
using wire::LibraryId;
using wire::ReferenceId;
using wire::ReferenceKind;
using wire::StreamId;
using wire::Ticket;

constexpr std::string_view kImage =
    ".version 8.0\n.target sm_90\n.address_size 64\n.global .texref texture;\n"
    ".visible .entry k(.param .u64 a, .param .u32 n) { ret; }\n";

class ReferenceTest : public ::testing::Test {
 protected:
  ~ReferenceTest() override { TestingDriver::Release(); }
  void SetUp() override {
    ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kImage));
    ASSERT_TRUE(tenant_->CreateStream(1, true));
    memory_ = tenant_->Alloc(4096);
    ASSERT_NE(memory_, 0u);
  }

  static std::optional<CUresult> Get(TestingTenant& tenant, uint32_t library, uint32_t id,
                                     std::string_view name,
                                     ReferenceKind kind = ReferenceKind::kTexture,
                                     wire::ReferenceGet::Reply* reply = nullptr) {
    return tenant.Call<wire::ReferenceGet>(
        {LibraryId{library}, ReferenceId{id}, kind}, reply,
        {reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  }
  std::optional<CUresult> Get(uint32_t id, std::string_view name,
                              ReferenceKind kind = ReferenceKind::kTexture) {
    return Get(*tenant_, 1, id, name, kind);
  }
  // As a fresh reference of the testing driver, over linear memory.
  wire::ReferenceSet::Request ToMemory(uint32_t id, uint64_t offset) const {
    wire::ReferenceSet::Request request{};
    request.reference = ReferenceId{id};
    request.bound = 1;
    request.look.resource = wire::ViewResource::kLinear;
    request.look.address = memory_ + offset;
    request.look.size_bytes = 256;
    request.look.format = CU_AD_FORMAT_FLOAT;
    request.look.channels = 1;
    for (uint32_t& mode : request.look.address_mode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    return request;
  }
  wire::ReferenceSet::Request ToArray(uint32_t id, uint32_t array) const {
    wire::ReferenceSet::Request request = ToMemory(id, 0);
    request.look.resource = wire::ViewResource::kArray;
    request.look.array = ArrayId{array};
    return request;
  }
  bool MakeArray(uint32_t id, uint32_t levels = 0) {
    wire::ArrayCreate::Request request{};
    request.array = ArrayId{id};
    request.levels = levels;
    request.width = 64;
    request.height = 16;
    request.format = CU_AD_FORMAT_FLOAT;
    request.channels = 1;
    request.flags = CUDA_ARRAY3D_SURFACE_LDST;
    return tenant_->Call<wire::ArrayCreate>(request) == CUDA_SUCCESS;
  }
  bool LaunchAndWait(uint32_t stream = 0) {
    return tenant_->WaitDone(stream, tenant_->LaunchPlain(stream, 1));
  }
  std::string At(uint64_t offset) const {
    return "texture address " + std::to_string(memory_ + offset) + " 256";
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
  uint64_t memory_ = 0;
};

TEST_F(ReferenceTest, TellsWhatAFreshOneIsLike) {
  wire::ReferenceGet::Reply reply{};
  ASSERT_EQ(Get(*tenant_, 1, 1, "texture", ReferenceKind::kTexture, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.format, static_cast<uint32_t>(CU_AD_FORMAT_FLOAT));
  EXPECT_EQ(reply.channels, 1u);
  EXPECT_EQ(reply.address_mode[2], static_cast<uint32_t>(CU_TR_ADDRESS_MODE_CLAMP));
  reply = {};
  ASSERT_EQ(Get(*tenant_, 0, 0, "", ReferenceKind::kTexture, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.channels, 1u);
}

TEST_F(ReferenceTest, ThereMustBeOneOfThatNameAndKind) {
  EXPECT_EQ(Get(1, "missing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Get(1, "surface"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Get(1, "texture", ReferenceKind::kSurface), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Get(1, "surface", ReferenceKind::kSurface), CUDA_SUCCESS);
}

// What several tenants have loaded has no state.
TEST_F(ReferenceTest, NotInWhatIsShared) {
  ASSERT_TRUE(tenant_->LoadKernel(2, 2, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->LoadLibrary(3, kEmptyPtx), CUDA_SUCCESS);
  EXPECT_EQ(Get(*tenant_, 3, 1, "texture"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(ReferenceTest, LaunchesGoWithWhatIsBound) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  ASSERT_EQ(Get(2, "surface", ReferenceKind::kSurface), CUDA_SUCCESS);
  ASSERT_TRUE(MakeArray(1));
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 0));
  EXPECT_TRUE(LaunchAndWait());
  EXPECT_THAT(TakeReferenceCalls(), ElementsAre(At(0)));
  EXPECT_TRUE(LaunchAndWait());
  EXPECT_THAT(TakeReferenceCalls(), IsEmpty()) << "nothing has changed";
  wire::ReferenceSet::Request request = ToMemory(1, 512);
  request.look.flags = CU_TRSF_READ_AS_INTEGER;
  request.look.filter_mode = CU_TR_FILTER_MODE_LINEAR;
  request.look.channels = 2;
  tenant_->Post<wire::ReferenceSet>(request);
  tenant_->Post<wire::ReferenceSet>(ToArray(2, 1));
  EXPECT_TRUE(LaunchAndWait(1));
  const std::vector<std::string> calls = TakeReferenceCalls();
  ASSERT_EQ(calls.size(), 5u);
  EXPECT_EQ(calls[0], "texture flags 1");
  EXPECT_EQ(calls[1], "texture filter 1");
  EXPECT_EQ(calls[2], "texture format " + std::to_string(CU_AD_FORMAT_FLOAT) + " 2");
  EXPECT_EQ(calls[3], At(512));
  EXPECT_TRUE(calls[4].starts_with("surface array ")) << calls[4];
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

// Rings say in what order things were asked for; streams run when they can.
TEST_F(ReferenceTest, ALaunchThatWaitsKeepsItsOwn) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  const uint64_t word = tenant_->order.host_range_begin + (1u << 20);
  uint32_t value = 0;
  ASSERT_EQ(pwrite(tenant_->arena.get(), &value, sizeof(value), 1 << 20), 4);
  ASSERT_EQ(tenant_->Call<wire::HostRegister>({wire::HostPtr{word}, 4096}), CUDA_SUCCESS);
  tenant_->Post<wire::StreamWaitValue>({word, 1, StreamId{1}, 4, CU_STREAM_WAIT_VALUE_EQ, 0});
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 0));
  const Ticket waiting = tenant_->LaunchPlain(1, 1);
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 512));
  EXPECT_TRUE(LaunchAndWait());
  EXPECT_THAT(TakeReferenceCalls(), ElementsAre(At(512)));
  value = 1;
  ASSERT_EQ(pwrite(tenant_->arena.get(), &value, sizeof(value), 1 << 20), 4);
  EXPECT_TRUE(tenant_->WaitDone(1, waiting));
  EXPECT_THAT(TakeReferenceCalls(), ElementsAre(At(0)));
  EXPECT_TRUE(LaunchAndWait());
  EXPECT_THAT(TakeReferenceCalls(), ElementsAre(At(512)));
}

TEST_F(ReferenceTest, LaunchesThatUseThemAreNotCollected) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 0));
  (void)TestingDriver::TakeCalls();
  Ticket last{};
  for (int i = 0; i < 200; ++i) last = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  for (const std::string& call : TestingDriver::TakeCalls()) {
    EXPECT_FALSE(call.starts_with("graph")) << "graphs must not use references";
  }
}

TEST_F(ReferenceTest, EveryKindOfMemory) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  ASSERT_TRUE(MakeArray(1));
  ASSERT_TRUE(MakeArray(2, 3));
  tenant_->Post<wire::ReferenceSet>(ToArray(1, 1));
  EXPECT_TRUE(LaunchAndWait());
  wire::ReferenceSet::Request request = ToArray(1, 2);
  request.look.resource = wire::ViewResource::kMipmap;
  tenant_->Post<wire::ReferenceSet>(request);
  EXPECT_TRUE(LaunchAndWait());
  request = ToMemory(1, 0);
  request.look.resource = wire::ViewResource::kPitched;
  request.look.width = 8;
  request.look.height = 4;
  request.look.pitch_bytes = 64;
  tenant_->Post<wire::ReferenceSet>(request);
  EXPECT_TRUE(LaunchAndWait());
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 0));
  EXPECT_TRUE(LaunchAndWait());
  const std::vector<std::string> calls = TakeReferenceCalls();
  ASSERT_EQ(calls.size(), 6u);
  EXPECT_TRUE(calls[0].starts_with("texture array ")) << calls[0];
  EXPECT_TRUE(calls[1].starts_with("texture mipmap ")) << calls[1];
  EXPECT_EQ(calls[2], "texture rows " + std::to_string(memory_) + " 64");
  EXPECT_EQ(calls[3], "texture none") << "a format may not follow rows";
  EXPECT_TRUE(calls[4].starts_with("texture format ")) << calls[4];
  EXPECT_EQ(calls[5], At(0));
}

// It may reach beyond what there is, or be nothing at all: only a kernel's fetch could tell.
TEST_F(ReferenceTest, MemoryIsNotJudged) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  wire::ReferenceSet::Request request = ToMemory(1, 0);
  request.look.size_bytes = uint64_t{1} << 32;
  tenant_->Post<wire::ReferenceSet>(request);
  EXPECT_TRUE(LaunchAndWait());
  request.look.address = 0x1234'5678'8000;
  tenant_->Post<wire::ReferenceSet>(request);
  EXPECT_TRUE(LaunchAndWait());
  EXPECT_EQ(TakeReferenceCalls().size(), 2u);
}

TEST_F(ReferenceTest, AnArrayStaysWhileTheDriverHasIt) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  ASSERT_TRUE(MakeArray(1));
  ASSERT_TRUE(MakeArray(2));
  tenant_->Post<wire::ReferenceSet>(ToArray(1, 1));
  EXPECT_TRUE(LaunchAndWait());
  (void)TestingDriver::TakeCalls();
  EXPECT_EQ(tenant_->Call<wire::ArrayDestroy>({ArrayId{1}}), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("destroy array")));
  // As the shim does.
  (void)TakeReferenceCalls();
  tenant_->Post<wire::ReferenceSet>(ToArray(1, 2));
  EXPECT_TRUE(LaunchAndWait());
  wire::ReferenceSet::Request nothing{};
  nothing.reference = ReferenceId{1};
  tenant_->Post<wire::ReferenceSet>(nothing);
  EXPECT_EQ(tenant_->Call<wire::ArrayDestroy>({ArrayId{2}}), CUDA_SUCCESS);
  const std::vector<std::string> calls = TakeReferenceCalls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1], "texture none");
  EXPECT_TRUE(tenant_->Wait([&] {
    return scheduler_.memory_in_use() == 2u << 20;  // the memory of linear textures
  })) << "both are given back";
}

TEST_F(ReferenceTest, EndOfTheSessionReturnsAllOfIt) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  ASSERT_TRUE(MakeArray(1));
  tenant_->Post<wire::ReferenceSet>(ToArray(1, 1));
  EXPECT_TRUE(LaunchAndWait());
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  auto next = scheduler_.AddTenant();
  EXPECT_TRUE(next->Wait([&] { return scheduler_.memory_in_use() == 0; }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(ReferenceTest, WhatTheDriverRefusesIsTheLaunchsError) {
  ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
  RefuseBinding(CUDA_ERROR_INVALID_VALUE);
  (void)TestingDriver::TakeCalls();
  for (uint64_t i = 0; i < 100; ++i) {
    tenant_->Post<wire::ReferenceSet>(ToMemory(1, 512 * (i % 4)));
    EXPECT_TRUE(LaunchAndWait());
  }
  EXPECT_EQ(tenant_->reader.async_error_count(), 100u);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("launch 1")));
  EXPECT_LT(TakeReferenceCalls().size(), 100u) << "it is left alone in the end";
}

class MaliciousReferenceTest : public ReferenceTest {
 protected:
  void SetUp() override {
    ReferenceTest::SetUp();
    ASSERT_EQ(Get(1, "texture"), CUDA_SUCCESS);
    ASSERT_EQ(Get(2, "surface", ReferenceKind::kSurface), CUDA_SUCCESS);
    ASSERT_TRUE(MakeArray(1));
  }
  void ExpectEnds(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal))
        << "ended with: " << wire::FatalText(tenant_->reader.fatal());
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->drained, 1u);
    auto honest = scheduler_.AddTenant();
    ASSERT_TRUE(honest->LoadKernel(1, 1, "k", kImage));
    ASSERT_EQ(Get(*honest, 1, 1, "texture"), CUDA_SUCCESS);
    EXPECT_TRUE(honest->WaitDone(0, honest->LaunchPlain(0, 1)));
  }
};

TEST_F(MaliciousReferenceTest, UnknownReference) {
  tenant_->Post<wire::ReferenceSet>(ToMemory(3, 0));
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, ReferenceBeyondTheTable) {
  tenant_->Post<wire::ReferenceSet>(ToMemory(wire::kMaxReferences, 0));
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, IdTwice) {
  EXPECT_EQ(Get(1, "other"), std::nullopt);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, UnknownKind) {
  EXPECT_EQ(Get(3, "other", static_cast<ReferenceKind>(2)), std::nullopt);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousReferenceTest, UnknownLibrary) {
  EXPECT_EQ(Get(*tenant_, 9, 3, "texture"), std::nullopt);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, OfAnUnloadedLibrary) {
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  tenant_->Post<wire::ReferenceSet>(ToMemory(1, 0));
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, UnknownArray) {
  tenant_->Post<wire::ReferenceSet>(ToArray(1, 2));
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, AnArrayAsMipmap) {
  wire::ReferenceSet::Request request = ToArray(1, 1);
  request.look.resource = wire::ViewResource::kMipmap;
  tenant_->Post<wire::ReferenceSet>(request);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousReferenceTest, OfAnUnknownKind) {
  wire::ReferenceSet::Request request = ToMemory(1, 0);
  request.look.resource = static_cast<wire::ViewResource>(9);
  tenant_->Post<wire::ReferenceSet>(request);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousReferenceTest, ASurfaceOfMemory) {
  tenant_->Post<wire::ReferenceSet>(ToMemory(2, 0));
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousReferenceTest, WithAView) {
  wire::ReferenceSet::Request request = ToArray(1, 1);
  request.look.has_view = 1;
  tenant_->Post<wire::ReferenceSet>(request);
  ExpectEnds(Fatal::kBadArgument);
}

}  // namespace
}  // namespace gpuloom::executor
