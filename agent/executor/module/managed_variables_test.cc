// SPDX-License-Identifier: Apache-2.0
// Libraries with `__managed__` variables: what a tenant says about their place is judged.
#include <gtest/gtest.h>

#include <cstring>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/testing/images.h"

namespace gpuloom::executor {
namespace {

using fatbin_internal::ElfHeader;
using fatbin_internal::ElfSection;
using wire::Fatal;
using wire::HostPtr;
using wire::LibraryId;

// A cubin with one managed variable of 8 bytes, "variable", that begins as 7.
struct TestCubin {
  ElfHeader header{};
  ElfSection sections[4] = {};  // none, symbols, names, initial values
  uint32_t symbols[12] = {};
  char names[32] = "\0variable\0.nv.global.init";
  uint64_t values[1] = {7};

  TestCubin() {
    header = testing_images::CubinHeader(offsetof(TestCubin, sections), 4, 2);
    sections[1] = {0, 2, 0, 0, offsetof(TestCubin, symbols), sizeof(symbols), 2, 0, 8, 24};
    sections[2] = {0, 3, 0, 0, offsetof(TestCubin, names), sizeof(names), 0, 0, 1, 0};
    sections[3] = {10, 1, 0, 0, offsetof(TestCubin, values), sizeof(values), 0, 0, 8, 0};
    // Of the second: the name, then the type, nvcc's mark and the section; value; size.
    symbols[6] = 1;
    symbols[7] = 1 | 4 << 8 | 3 << 16;
    symbols[10] = sizeof(values);
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

class ManagedVariablesTest : public ::testing::Test {
 protected:
  ~ManagedVariablesTest() override { TestingDriver::Release(); }

  // A registered page of the arena, behind the image.
  uint64_t Page() {
    const uint64_t page = tenant_->order.host_range_begin + (64u << 10);
    std::memset(reinterpret_cast<void*>(page), 0, wire::kPageBytes);
    EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{page}, wire::kPageBytes}), CUDA_SUCCESS);
    return page;
  }
  void ExpectRefused(Fatal reason) {
    EXPECT_TRUE(tenant_->WaitFatal(reason));
    const auto neighbour = scheduler_.AddTenant();
    EXPECT_NE(neighbour->Alloc(1), 0u);
  }
  std::optional<CUresult> Services(uint64_t place, uint32_t library = 1) {
    return tenant_->Call<wire::LibraryPlace>({LibraryId{library}, 0, HostPtr{place}});
  }
  std::optional<CUresult> PlaceApart(uint64_t place, uint64_t values) {
    return tenant_->Call<wire::LibraryPlaceApart>(
        {LibraryId{1}, 0, wire::DevicePtr{place}, HostPtr{values}});
  }
  wire::ManagedSpace::Reply ManagedSpace() {
    wire::ManagedSpace::Reply space{};
    EXPECT_EQ(tenant_->Call<wire::ManagedSpace>({}, &space), CUDA_SUCCESS);
    return space;
  }
  std::optional<CUresult> Find(std::string_view name, wire::ManagedGet::Reply* reply) {
    return tenant_->Call<wire::ManagedGet>(
        {LibraryId{1}}, reply, {reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  }

  std::unique_ptr<TestingTenant> AddTenant() {
    scheduler_.host_range_bytes = 8 * wire::kManagedStepBytes;
    return scheduler_.AddTenant();
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = AddTenant();
  TestCubin cubin_;
};

TEST_F(ManagedVariablesTest, LieWhereTheTenantWantsThem) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  ASSERT_EQ(Services(page + 512), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(page + 512), 7u);
  wire::ManagedGet::Reply reply{};
  ASSERT_EQ(Find("variable", &reply), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint64_t>(reply.address), page + 512);
  EXPECT_EQ(reply.size_bytes, 8u);
  EXPECT_EQ(Find("variables", &reply), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
}

// Where the driver has made no cubin of it, it is asked what they are, for which it waits for the device.
TEST_F(ManagedVariablesTest, OfTextAreReadInAQuietMoment) {
  const auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  neighbour->LaunchPlain(0, 1);
  ASSERT_TRUE(neighbour->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const std::string text =
      std::string(kEmptyPtx) + ".visible .global .attribute(.managed) .align 4 .u32 counter = 5;\n";
  const uint64_t arena = tenant_->order.host_range_begin + kImageOffset;
  std::memcpy(reinterpret_cast<void*>(arena), text.data(), text.size());
  const auto ticket =
      tenant_->Post<wire::LibraryLoad>({LibraryId{1}, 0, HostPtr{arena}, text.size()}, {}, 3);
  EXPECT_TRUE(neighbour->Wait([] { return TestingDriver::WasCalled("load"); }));
  EXPECT_TRUE(neighbour->Never([] { return TestingDriver::WasCalled("managed"); }));
  TestingDriver::Release();
  const wire::ReplySlot* answer = nullptr;
  ASSERT_TRUE(
      tenant_->Wait([&] { return (answer = tenant_->reader.FindReply(3, ticket)) != nullptr; }));
  EXPECT_EQ(static_cast<CUresult>(answer->result), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("unload"); }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
  ASSERT_EQ(Services(Page()), CUDA_SUCCESS);
  wire::ManagedGet::Reply reply{};
  ASSERT_EQ(Find("counter", &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.size_bytes, 256u);
}

// Their values are in the arena, where the tenant sees them until it moves them to the device.
TEST_F(ManagedVariablesTest, LieInManagedSpaceWhileNothingIsMappedThere) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  const wire::ManagedSpace::Reply space = ManagedSpace();
  ASSERT_EQ(PlaceApart(space.begin + 1024, page), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(page), 7u);
  wire::ManagedGet::Reply reply{};
  ASSERT_EQ(Find("variable", &reply), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint64_t>(reply.address), space.begin + 1024);
  EXPECT_EQ(reply.size_bytes, 8u);
  EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
}

// More than all addresses for them: it neither loads nor crashes anybody.
TEST_F(ManagedVariablesTest, AreRefusedWhereTheyCannotBePlaced) {
  constexpr uint32_t kNoBits = 8;
  cubin_.sections[3].type = kNoBits;
  cubin_.sections[3].size = uint64_t{5} << 30;
  cubin_.symbols[10] = uint32_t{1} << 30;
  cubin_.symbols[11] = 1;
  EXPECT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(tenant_->LoadLibrary(1, TestCubin().text()), CUDA_SUCCESS);
  const auto neighbour = scheduler_.AddTenant();
  EXPECT_NE(neighbour->Alloc(1), 0u);
}

// The tenant is told when it loads, while what else is in a fatbin can still be taken.
TEST_F(ManagedVariablesTest, GetNoPlaceInACubinThatTheDriverRefuses) {
  TestingDriver::RefuseCubins();
  EXPECT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// What is tried for that is not kept.
TEST_F(ManagedVariablesTest, AreTriedOnce) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("unload"); }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
  (void)TestingDriver::TakeCalls();
  ASSERT_EQ(tenant_->LoadLibrary(2, cubin_.text()), CUDA_SUCCESS);
  EXPECT_FALSE(TestingDriver::WasCalled("load cubin"));
}

TEST_F(ManagedVariablesTest, MayBeGivenUpBeforeTheyHaveAPlace) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
}

TEST_F(ManagedVariablesTest, Malicious_PlaceOutsideOfPinnedMemory) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  (void)Services(page + wire::kPageBytes);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(ManagedVariablesTest, Malicious_CrookedPlace) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  (void)Services(Page() + 8);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(ManagedVariablesTest, Malicious_PlaceBehindManagedSpace) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  const wire::ManagedSpace::Reply space = ManagedSpace();
  (void)PlaceApart(space.begin + space.size_bytes, page);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(ManagedVariablesTest, Malicious_PlaceInManagedSpaceThatNobodyHasAskedFor) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  (void)PlaceApart(tenant_->order.host_range_begin + tenant_->order.host_range_bytes / 4 * 3, page);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(ManagedVariablesTest, Malicious_ValuesOutsideOfPinnedMemory) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  const wire::ManagedSpace::Reply space = ManagedSpace();
  (void)PlaceApart(space.begin, page + wire::kPageBytes);
  ExpectRefused(Fatal::kBadRange);
}

TEST_F(ManagedVariablesTest, Malicious_CrookedPlaceInManagedSpace) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  (void)PlaceApart(ManagedSpace().begin + 8, page);
  ExpectRefused(Fatal::kBadArgument);
}

TEST_F(ManagedVariablesTest, Malicious_PlaceForWhatHasOne) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  const uint64_t page = Page();
  ASSERT_EQ(Services(page), CUDA_SUCCESS);
  (void)Services(page);
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(ManagedVariablesTest, Malicious_UseBeforeThePlace) {
  ASSERT_EQ(tenant_->LoadLibrary(1, cubin_.text()), CUDA_SUCCESS);
  wire::ManagedGet::Reply reply{};
  (void)Find("variable", &reply);
  ExpectRefused(Fatal::kBadHandle);
}

TEST_F(ManagedVariablesTest, Malicious_PlaceForNoLibrary) {
  (void)Services(Page(), 77);
  ExpectRefused(Fatal::kBadHandle);
}

}  // namespace
}  // namespace gpuloom::executor
