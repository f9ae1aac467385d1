// SPDX-License-Identifier: Apache-2.0
// Pools that one tenant shares and another opens: who reaches what, and whose memory it is.
#include <gtest/gtest.h>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::DevicePtr;
using wire::Fatal;
using wire::PoolId;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class SharedPoolTest : public ::testing::Test {
 protected:
  struct Taken {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
  };

  std::optional<wire::PoolShare::Reply> Share(TestingTenant& tenant, uint32_t id) {
    wire::PoolShare::Reply reply{};
    if (tenant.Call<wire::PoolShare>({PoolId{id}}, &reply) != CUDA_SUCCESS) return std::nullopt;
    return reply;
  }
  std::optional<CUresult> Open(TestingTenant& tenant, uint32_t id, const wire::Token& token) {
    return tenant.Call<wire::PoolOpen>({PoolId{id}, 0, token});
  }
  // 0 on failure.
  uint64_t Put(TestingTenant& tenant, uint32_t id, uint64_t address) {
    wire::PoolPut::Reply reply{};
    if (tenant.Call<wire::PoolPut>({PoolId{id}, 0, DevicePtr{address}}, &reply) != CUDA_SUCCESS) {
      return 0;
    }
    return reply.memory;
  }
  std::optional<CUresult> Take(TestingTenant& tenant, uint32_t id, uint64_t memory,
                               Taken* taken = nullptr) {
    wire::PoolTake::Reply reply{};
    const auto result = tenant.Call<wire::PoolTake>({PoolId{id}, 0, memory}, &reply);
    if (taken != nullptr) *taken = {static_cast<uint64_t>(reply.address), reply.size_bytes};
    return result;
  }
  // A pool of `maker_`'s under id 1, opened by `other_` under id 7, with one piece of memory.
  void SetUpPair() {
    const auto shared = Share(*maker_, 1);
    ASSERT_TRUE(shared.has_value());
    token_ = shared->token;
    ASSERT_EQ(Open(*other_, 7, token_), CUDA_SUCCESS);
    address_ = maker_->Alloc(4 * kMiB);
    ASSERT_NE(address_, 0u);
    memory_ = Put(*maker_, 1, address_);
    ASSERT_NE(memory_, 0u);
  }
  // Is the tenant served?
  bool Writes(TestingTenant& tenant, uint64_t address) {
    return tenant.WaitDone(0, tenant.Post<wire::Fill>({wire::StreamId{0}, 4, 7, 0, address, 16}));
  }
  bool WaitMemory(uint64_t bytes) {
    return other_->Wait([&] { return scheduler_.memory_in_use() == bytes; });
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> maker_ = scheduler_.AddTenant();
  std::unique_ptr<TestingTenant> other_ = scheduler_.AddTenant();
  wire::Token token_{};
  uint64_t address_ = 0;
  uint64_t memory_ = 0;
};

TEST_F(SharedPoolTest, MemoryLivesUntilBothHaveFreedIt) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  EXPECT_EQ(Put(*maker_, 1, address_), memory_) << "the same memory has another number";
  Taken taken;
  ASSERT_EQ(Take(*other_, 7, memory_, &taken), CUDA_SUCCESS);
  EXPECT_EQ(taken.size_bytes, 4 * kMiB);
  EXPECT_GE(taken.address, other_->order.device_range_begin);
  EXPECT_LT(taken.address, other_->order.device_range_begin + other_->order.device_range_bytes);
  EXPECT_TRUE(Writes(*other_, taken.address + 4 * kMiB - 64));
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB) << "charged once";
  EXPECT_EQ(maker_->Free(address_), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
  EXPECT_TRUE(Writes(*other_, taken.address));
  Taken again;
  ASSERT_EQ(Take(*other_, 7, memory_, &again), CUDA_SUCCESS) << "it is still there";
  EXPECT_NE(again.address, taken.address);
  EXPECT_EQ(other_->Free(taken.address), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
  EXPECT_EQ(other_->Free(again.address), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_EQ(Take(*other_, 7, memory_), CUDA_ERROR_INVALID_HANDLE) << "it is gone";
}

TEST_F(SharedPoolTest, TheOtherFreesFirst) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  Taken taken;
  ASSERT_EQ(Take(*other_, 7, memory_, &taken), CUDA_SUCCESS);
  EXPECT_EQ(other_->Free(taken.address), CUDA_SUCCESS);
  EXPECT_TRUE(Writes(*maker_, address_));
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
  EXPECT_EQ(maker_->Free(address_), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u) << "what others have a name for is not kept";
}

TEST_F(SharedPoolTest, TheMakersEndLeavesTheOthersMemory) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  const uint64_t unshared = maker_->Alloc(6 * kMiB);
  ASSERT_NE(unshared, 0u);
  const uint64_t untaken = maker_->Alloc(8 * kMiB);
  const uint64_t untaken_memory = Put(*maker_, 1, untaken);
  ASSERT_NE(untaken_memory, 0u);
  Taken taken;
  ASSERT_EQ(Take(*other_, 7, memory_, &taken), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*maker_);
  ASSERT_TRUE(scheduler_.WaitEnded(maker_->order.session_id).has_value());
  EXPECT_TRUE(WaitMemory(4 * kMiB));
  EXPECT_TRUE(Writes(*other_, taken.address));
  EXPECT_EQ(Take(*other_, 7, untaken_memory), CUDA_ERROR_INVALID_HANDLE);
  // The name works as long as somebody has the pool open.
  auto third = scheduler_.AddTenant();
  EXPECT_EQ(Open(*third, 1, token_), CUDA_SUCCESS);
  EXPECT_EQ(Take(*third, 1, memory_), CUDA_SUCCESS);
  third->Post<wire::PoolClose>({PoolId{1}});
  other_->Post<wire::PoolClose>({PoolId{7}});
  EXPECT_EQ(other_->Free(taken.address), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB) << "the third has it";
  EXPECT_EQ(Open(*other_, 8, token_), CUDA_ERROR_INVALID_HANDLE);
  scheduler_.RemoveTenant(*third);
  ASSERT_TRUE(scheduler_.WaitEnded(third->order.session_id).has_value());
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SharedPoolTest, TheOthersEndLeavesTheMakersMemory) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  ASSERT_EQ(Take(*other_, 7, memory_), CUDA_SUCCESS);
  ASSERT_EQ(Take(*other_, 7, memory_), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*other_);
  ASSERT_TRUE(scheduler_.WaitEnded(other_->order.session_id).has_value());
  EXPECT_TRUE(Writes(*maker_, address_));
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
  EXPECT_EQ(maker_->Free(address_), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(SharedPoolTest, OnlyWhatWasPutUnderThePoolIsReached) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  const auto second = Share(*maker_, 2);
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->number, 0u);
  ASSERT_EQ(Open(*other_, 8, second->token), CUDA_SUCCESS);
  EXPECT_EQ(Take(*other_, 8, memory_), CUDA_ERROR_INVALID_HANDLE) << "another pool's memory";
  for (const uint64_t number : {uint64_t{0}, memory_ + 1, ~uint64_t{0}}) {
    EXPECT_EQ(Take(*other_, 7, number), CUDA_ERROR_INVALID_HANDLE) << number;
  }
  wire::Token wrong = token_;
  wrong.words[1] ^= 1;
  EXPECT_EQ(Open(*other_, 9, wrong), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Open(*other_, 9, wire::Token{}), CUDA_ERROR_INVALID_HANDLE);
  // The pool's name is none of memory, nor the other way round.
  EXPECT_EQ(other_->Call<wire::PhysicalImport>({wire::PhysicalId{1}, 0, token_}),
            CUDA_ERROR_INVALID_HANDLE);
  wire::MemExport::Reply exported{};
  ASSERT_EQ(maker_->Call<wire::MemExport>({DevicePtr{address_}}, &exported), CUDA_SUCCESS);
  EXPECT_EQ(Open(*other_, 9, exported.token), CUDA_ERROR_INVALID_HANDLE);
}

// Names of much memory that is gone do not pile up, and what is there keeps its number.
TEST_F(SharedPoolTest, NumbersOfGoneMemoryAreForgotten) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  for (int i = 0; i < 300; ++i) {
    const uint64_t address = maker_->Alloc(2 * kMiB);
    ASSERT_NE(address, 0u);
    const uint64_t memory = Put(*maker_, 1, address);
    ASSERT_NE(memory, 0u);
    ASSERT_NE(memory, memory_);
    ASSERT_EQ(maker_->Free(address), CUDA_SUCCESS);
  }
  EXPECT_EQ(Put(*maker_, 1, address_), memory_);
  EXPECT_EQ(Take(*other_, 7, memory_), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
}

TEST_F(SharedPoolTest, AnEndWhileMemoryIsBeingMapped) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  for (int i = 0; i < 20; ++i) {
    auto third = scheduler_.AddTenant();
    ASSERT_EQ(Open(*third, 1, token_), CUDA_SUCCESS);
    for (uint16_t slot = 0; slot < 8; ++slot) {
      third->Post<wire::PoolTake>({PoolId{1}, 0, memory_}, {}, slot);
    }
    scheduler_.RemoveTenant(*third);
    ASSERT_TRUE(scheduler_.WaitEnded(third->order.session_id).has_value());
  }
  EXPECT_TRUE(Writes(*maker_, address_));
  EXPECT_EQ(scheduler_.memory_in_use(), 4 * kMiB);
  // The maker ends while others are taking what it has.
  for (uint16_t slot = 0; slot < 8; ++slot) {
    other_->Post<wire::PoolTake>({PoolId{7}, 0, memory_}, {}, slot);
  }
  scheduler_.RemoveTenant(*maker_);
  ASSERT_TRUE(scheduler_.WaitEnded(maker_->order.session_id).has_value());
  scheduler_.RemoveTenant(*other_);
  ASSERT_TRUE(scheduler_.WaitEnded(other_->order.session_id).has_value());
  auto honest = scheduler_.AddTenant();
  EXPECT_TRUE(honest->Wait([&] { return scheduler_.memory_in_use() == 0; }));
  EXPECT_NE(honest->Alloc(1000), 0u);
}

TEST_F(SharedPoolTest, PoolsComeAndGo) {
  ASSERT_NO_FATAL_FAILURE(SetUpPair());
  for (int i = 0; i < 300; ++i) {
    const auto shared = Share(*maker_, 5);
    ASSERT_TRUE(shared.has_value());
    ASSERT_EQ(Open(*other_, 5, shared->token), CUDA_SUCCESS);
    maker_->Post<wire::PoolClose>({PoolId{5}});
    other_->Post<wire::PoolClose>({PoolId{5}});
    // Read by now: an answer comes in the ring's order.
    EXPECT_EQ(Take(*maker_, 1, memory_ + 1), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(Open(*other_, 5, shared->token), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(Open(*other_, 5, token_), CUDA_SUCCESS);
  EXPECT_EQ(Take(*other_, 5, memory_), CUDA_SUCCESS);
}

// What breaks the protocol ends who does it, and the other goes on.
class Malicious_SharedPool : public SharedPoolTest {
 protected:
  void ExpectEnds(TestingTenant& tenant, Fatal fatal) {
    EXPECT_TRUE(tenant.WaitFatal(fatal)) << wire::FatalText(tenant.reader.fatal());
    ASSERT_TRUE(scheduler_.WaitEnded(tenant.order.session_id).has_value());
    if (&tenant == maker_.get()) {
      EXPECT_NE(other_->Alloc(1000), 0u);
    } else {
      EXPECT_TRUE(Writes(*maker_, address_));
    }
  }
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(SetUpPair()); }
};

TEST_F(Malicious_SharedPool, UnknownPool) {
  other_->Post<wire::PoolTake>({PoolId{8}, 0, memory_}, {}, 0);
  ExpectEnds(*other_, Fatal::kBadHandle);
}

TEST_F(Malicious_SharedPool, PoolOutOfRange) {
  other_->Post<wire::PoolOpen>({PoolId{wire::kMaxSharedPools}, 0, token_}, {}, 0);
  ExpectEnds(*other_, Fatal::kBadHandle);
}

TEST_F(Malicious_SharedPool, IdInUse) {
  other_->Post<wire::PoolShare>({PoolId{7}}, {}, 0);
  ExpectEnds(*other_, Fatal::kBadHandle);
}

TEST_F(Malicious_SharedPool, ClosesTwice) {
  other_->Post<wire::PoolClose>({PoolId{7}});
  other_->Post<wire::PoolClose>({PoolId{7}});
  ExpectEnds(*other_, Fatal::kBadHandle);
}

TEST_F(Malicious_SharedPool, PutsIntoAnothersPool) {
  const uint64_t own = other_->Alloc(2 * kMiB);
  ASSERT_NE(own, 0u);
  other_->Post<wire::PoolPut>({PoolId{7}, 0, DevicePtr{own}}, {}, 0);
  ExpectEnds(*other_, Fatal::kBadHandle);
}

TEST_F(Malicious_SharedPool, PutsAnothersMemory) {
  const auto shared = Share(*other_, 1);
  ASSERT_TRUE(shared.has_value());
  other_->Post<wire::PoolPut>({PoolId{1}, 0, DevicePtr{address_}}, {}, 0);
  ExpectEnds(*other_, Fatal::kBadRange);
}

TEST_F(Malicious_SharedPool, PutsAPartOfAnAllocation) {
  maker_->Post<wire::PoolPut>({PoolId{1}, 0, DevicePtr{address_ + 2 * kMiB}}, {}, 0);
  ExpectEnds(*maker_, Fatal::kBadRange);
}

TEST_F(Malicious_SharedPool, PutsASlice) {
  const uint64_t slice = maker_->Alloc(4096);
  ASSERT_NE(slice, 0u);
  maker_->Post<wire::PoolPut>({PoolId{1}, 0, DevicePtr{slice}}, {}, 0);
  ExpectEnds(*maker_, Fatal::kBadRange);
}

TEST_F(Malicious_SharedPool, PutsWhatItHasFreed) {
  ASSERT_EQ(maker_->Free(address_), CUDA_SUCCESS);
  maker_->Post<wire::PoolPut>({PoolId{1}, 0, DevicePtr{address_}}, {}, 0);
  EXPECT_TRUE(maker_->WaitFatal(Fatal::kBadRange));
}

}  // namespace
}  // namespace gpuloom::executor
