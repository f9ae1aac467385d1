// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "agent/executor/memory/device_space.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::DevicePtr;
using wire::HostPtr;
using wire::PhysicalId;

constexpr wire::StreamId kDefault = wire::kLegacyStream;
constexpr uint64_t kStep = wire::kManagedStepBytes;

// What another thread has mapped there: it is known from an answer in memory of which ThreadSanitizer knows nothing.
__attribute__((noinline, no_sanitize("thread"))) char Byte(uint64_t address) {
  return *reinterpret_cast<volatile char*>(address);
}

class ManagedMemoryOfSession : public ::testing::Test {
 protected:
  // Where the tenant's managed memory begins.
  uint64_t Space(TestingTenant* tenant) {
    wire::ManagedSpace::Reply space{};
    EXPECT_EQ(tenant->Call<wire::ManagedSpace>({}, &space), CUDA_SUCCESS);
    EXPECT_GE(space.size_bytes, 2 * kStep);
    EXPECT_EQ(space.begin + space.size_bytes,
              tenant->order.host_range_begin + tenant->order.host_range_bytes);
    return space.begin;
  }
  uint64_t Space() { return Space(tenant_.get()); }
  void Create(uint32_t id) {
    ASSERT_EQ(tenant_->Call<wire::PhysicalCreate>({PhysicalId{id}, 0, kGranuleBytes}),
              CUDA_SUCCESS);
  }
  std::optional<CUresult> Map(uint64_t at, uint32_t id, uint64_t pages = 0) {
    return tenant_->Call<wire::ManagedMap>(
        {DevicePtr{at}, kGranuleBytes, PhysicalId{id}, 0, HostPtr{pages}});
  }
  std::optional<CUresult> Unmap(uint64_t at) {
    return tenant_->Call<wire::ManagedUnmap>({DevicePtr{at}, kGranuleBytes});
  }
  // The beginning of the arena, registered.
  uint64_t Register(uint64_t size_bytes = kGranuleBytes) {
    const uint64_t pages = tenant_->order.host_range_begin;
    std::memset(reinterpret_cast<void*>(pages), 1, size_bytes);
    EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{pages}, size_bytes}), CUDA_SUCCESS);
    return pages;
  }
  bool MayName(uint64_t address) {
    tenant_->Post<wire::Fill>({kDefault, 1, 0, 0, address, kGranuleBytes});
    return tenant_->Call<wire::MemInfo>({}).has_value();
  }
  void ExpectServed(TestingTenant* tenant) {
    EXPECT_EQ(tenant->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  }

  std::unique_ptr<TestingTenant> AddTenant() {
    scheduler_.host_range_bytes = 8 * kStep;
    return scheduler_.AddTenant();
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = AddTenant();
  std::unique_ptr<TestingTenant> neighbour_ = AddTenant();
};

TEST_F(ManagedMemoryOfSession, ShowsDeviceMemoryAndThenPagesAtOneAddress) {
  const uint64_t at = Space();
  const uint64_t pages = Register();
  Create(1);
  ASSERT_EQ(Map(at, 1), CUDA_SUCCESS);
  EXPECT_TRUE(MayName(at));
  ASSERT_EQ(tenant_->Call<wire::PhysicalRelease>({PhysicalId{1}}), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), kGranuleBytes) << "the mapping holds it";
  ASSERT_EQ(Unmap(at), CUDA_SUCCESS);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);

  ASSERT_EQ(Map(at, 0, pages), CUDA_SUCCESS);
  EXPECT_TRUE(MayName(at));
  *reinterpret_cast<volatile char*>(pages) = 7;
  EXPECT_EQ(Byte(at), 7) << "the executor has the pages there";
  ASSERT_EQ(Unmap(at), CUDA_SUCCESS);
  Create(2);
  EXPECT_EQ(Map(at, 2), CUDA_SUCCESS) << "once the pages are unpinned";
  ExpectServed(neighbour_.get());
}

TEST_F(ManagedMemoryOfSession, EndsWithTheSession) {
  const uint64_t at = Space();
  const uint64_t pages = Register();
  Create(1);
  ASSERT_EQ(Map(at, 1), CUDA_SUCCESS);
  ASSERT_EQ(Map(at + kStep, 0, pages), CUDA_SUCCESS);
  const control::AddSession order = tenant_->order;
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  // The host range comes back once its pages are unpinned.
  ASSERT_TRUE(scheduler_.WaitArenaReturned(order.session_id));
  void* const free = mmap(reinterpret_cast<void*>(at), 2 * kStep, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(free, reinterpret_cast<void*>(at)) << "something is mapped there";
  if (free != MAP_FAILED) munmap(free, 2 * kStep);
  ExpectServed(neighbour_.get());
}

TEST_F(ManagedMemoryOfSession, IsNotForWhoeverHasRegisteredMemoryThere) {
  const control::AddSession& order = tenant_->order;
  const uint64_t last = order.host_range_begin + order.host_range_bytes - wire::kPageBytes;
  *reinterpret_cast<volatile char*>(last) = 1;
  ASSERT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{last}, wire::kPageBytes}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::ManagedSpace>({}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(tenant_->Call<wire::HostUnregister>({HostPtr{last}, wire::kPageBytes}), CUDA_SUCCESS);
}

TEST_F(ManagedMemoryOfSession, Malicious_NothingIsMappedElsewhereOrTwice) {
  struct Attempt {
    const char* what;
    std::function<std::optional<CUresult>(uint64_t at, uint64_t pages)> make;
  };
  const auto map = [this](uint64_t at, uint64_t size_bytes, uint32_t id, uint64_t pages) {
    return tenant_->Call<wire::ManagedMap>(
        {DevicePtr{at}, size_bytes, PhysicalId{id}, 0, HostPtr{pages}});
  };
  const Attempt attempts[] = {
      {"before the space", [&](uint64_t at, uint64_t) { return Map(at - kStep, 1); }},
      {"beyond the space",
       [&](uint64_t, uint64_t) {
         return Map(tenant_->order.host_range_begin + tenant_->order.host_range_bytes, 1);
       }},
      {"in device memory",
       [&](uint64_t, uint64_t) { return Map(tenant_->order.device_range_begin, 1); }},
      {"not at a step", [&](uint64_t at, uint64_t) { return Map(at + kGranuleBytes, 1); }},
      {"not a granule", [&](uint64_t at, uint64_t) { return map(at, wire::kPageBytes, 1, 0); }},
      {"nothing", [&](uint64_t at, uint64_t) { return map(at, 0, 1, 0); }},
      {"another size", [&](uint64_t at, uint64_t) { return map(at, 2 * kGranuleBytes, 1, 0); }},
      {"no such memory", [&](uint64_t at, uint64_t) { return Map(at, 9); }},
      {"pages that are not registered",
       [&](uint64_t at, uint64_t pages) { return Map(at, 0, pages + kGranuleBytes); }},
      {"a part of a page", [&](uint64_t at, uint64_t pages) { return Map(at, 0, pages + 1); }},
      {"pages twice",
       [&](uint64_t at, uint64_t pages) {
         EXPECT_EQ(Map(at, 0, pages), CUDA_SUCCESS);
         return Map(at + kStep, 0, pages);
       }},
      {"over another",
       [&](uint64_t at, uint64_t pages) {
         EXPECT_EQ(Map(at, 1), CUDA_SUCCESS);
         return Map(at, 0, pages);
       }},
      {"unmapping what is not there", [&](uint64_t at, uint64_t) { return Unmap(at); }},
      {"unregistering pages that are mapped",
       [&](uint64_t at, uint64_t pages) {
         EXPECT_EQ(Map(at, 0, pages), CUDA_SUCCESS);
         return tenant_->Call<wire::HostUnregister>({HostPtr{pages}, kGranuleBytes});
       }},
      {"registering in the space",
       [&](uint64_t at, uint64_t) {
         return tenant_->Call<wire::HostRegister>({HostPtr{at}, wire::kPageBytes});
       }},
      {"naming what has been unmapped",
       [&](uint64_t at, uint64_t) -> std::optional<CUresult> {
         EXPECT_EQ(Map(at, 1), CUDA_SUCCESS);
         EXPECT_EQ(Unmap(at), CUDA_SUCCESS);
         return MayName(at) ? std::optional(CUDA_SUCCESS) : std::nullopt;
       }},
  };
  for (const Attempt& attempt : attempts) {
    SCOPED_TRACE(attempt.what);
    tenant_ = AddTenant();
    const uint64_t at = Space();
    const uint64_t pages = Register();
    Create(1);
    EXPECT_EQ(attempt.make(at, pages), std::nullopt) << "the session ends";
    ExpectServed(neighbour_.get());
    scheduler_.RemoveTenant(*tenant_);
    ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  }
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
