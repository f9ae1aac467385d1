// SPDX-License-Identifier: Apache-2.0
// Memory that is cleared before a tenant gets it is the tenant's work, and takes no more of the device than that may.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "agent/executor/memory/device_space.h"
#include "agent/executor/testing/tenant_test_fixture.h"

namespace gpuloom::executor {
namespace {

using wire::Ticket;

// As in clears.h: what goes at once, and the pieces of more.
constexpr uint64_t kLittle = 32u << 20;
constexpr uint64_t kPiece = 256u << 20;
constexpr uint64_t kLarge = kPiece + kLittle;  // two pieces
constexpr uint16_t kSlot = 5;

class ClearsTest : public TenantTest {
 protected:
  void SetUp() override {
    TenantTest::SetUp();
    scheduler_.must_clear = true;
    scheduler_.quota_bytes = uint64_t{64} << 30;
  }

  // Asks for memory without waiting for it.
  static Ticket Ask(TestingTenant* tenant, uint64_t size_bytes) {
    return tenant->Post<wire::MemAlloc>({size_bytes}, {}, kSlot);
  }
  static bool Has(const TestingTenant& tenant, Ticket ticket) {
    return tenant.reader.FindReply(kSlot, ticket) != nullptr;
  }
  static int Clears() {
    const auto calls = TestingDriver::TakeCalls();
    return static_cast<int>(std::count_if(
        calls.begin(), calls.end(), [](const auto& call) { return call.starts_with("clear"); }));
  }
};

TEST_F(ClearsTest, WhoIsAloneWaitsForNothing) {
  (void)TestingDriver::TakeCalls();
  EXPECT_NE(tenant_->Alloc(kLarge), 0u);
  EXPECT_EQ(Clears(), 1) << "in one piece";
}

TEST_F(ClearsTest, LittleIsClearedWithoutATurn) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const uint64_t address = tenant_->Alloc(4u << 20);
  EXPECT_NE(address, 0u);
  EXPECT_EQ(tenant_->Free(address), CUDA_SUCCESS);
}

TEST_F(ClearsTest, MuchWaitsForATurnAndAsksForOne) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  (void)TestingDriver::TakeCalls();
  const Ticket asked = Ask(tenant_.get(), kLarge);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, true));
  EXPECT_TRUE(tenant_->Never([&] { return Has(*tenant_, asked); }));
  EXPECT_NE(tenant_->Alloc(4u << 20), 0u) << "little does not wait behind it";
  EXPECT_EQ(Clears(), 1);
  scheduler_.GiveTurn(3, 1'000'000);
  EXPECT_TRUE(tenant_->Wait([&] { return Has(*tenant_, asked); }));
  EXPECT_EQ(Clears(), 2) << "in pieces, because others wait for the turn";
}

// Its kernel may wait for what the program does behind the allocation.
TEST_F(ClearsTest, BesideAKernelThatDoesNotEndAllOfItGoesAtOnceInTheEnd) {
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  (void)scheduler_.EndTurn();
  const Ticket asked = Ask(tenant_.get(), kLarge);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("clear"); }));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([&] { return Has(*tenant_, asked); })) << "there is still no turn";
  EXPECT_EQ(Clears(), 1);
}

TEST_F(ClearsTest, ATurnHasDrainedOnceMemoryIsCleared) {
  TestingDriver::Hold();
  const Ticket asked = Ask(tenant_.get(), kLarge);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("clear"); }));
  const uint32_t turn = scheduler_.EndTurn();
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasDrained(turn); }));
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(turn));
  EXPECT_TRUE(tenant_->Wait([&] { return Has(*tenant_, asked); }));
}

TEST_F(ClearsTest, WhoIsHeldWaitsAndIsHeldOnceItIsDone) {
  TestingDriver::Hold();
  const Ticket first = Ask(tenant_.get(), kLarge);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("clear"); }));
  const uint32_t hold = scheduler_.Hold(*tenant_, true);
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasHeld(hold); }));
  TestingDriver::Release();
  ASSERT_TRUE(scheduler_.WaitHeld(hold));
  EXPECT_TRUE(tenant_->Wait([&] { return Has(*tenant_, first); }));
  const Ticket second = Ask(tenant_.get(), 2 * kLittle);
  EXPECT_TRUE(tenant_->Never([&] { return Has(*tenant_, second); }));
  scheduler_.Hold(*tenant_, false);
  EXPECT_TRUE(tenant_->Wait([&] { return Has(*tenant_, second); }));
}

TEST_F(ClearsTest, ItIsPaidFor) {
  TestingDriver::Hold();
  const Ticket asked = Ask(tenant_.get(), kLarge);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("clear"); }));
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(20)) {
    EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  }
  TestingDriver::Release();
  ASSERT_TRUE(tenant_->Wait([&] { return Has(*tenant_, asked); }));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended);
  EXPECT_GE(ended->time.compute_ns, 15'000'000u);
}

// What a tenant takes of the device by allocating and freeing is below its ceiling, as its kernels are.
TEST_F(ClearsTest, Malicious_AllocatingWithoutEndStaysBelowTheCeiling) {
  scheduler_.shares = {0, 0, 2, 0, 100};
  const auto churns = AddTenant();
  TestingDriver::Hold();
  const auto begun = std::chrono::steady_clock::now();
  const Ticket asked = Ask(churns.get(), kLarge);
  ASSERT_TRUE(churns->Wait([] { return TestingDriver::WasCalled("clear"); }));
  while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(100)) {
    EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  }
  TestingDriver::Release();
  ASSERT_TRUE(churns->Wait([&] { return Has(*churns, asked); }));
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
  scheduler_.RemoveTenant(*churns);
  const auto ended = scheduler_.WaitEnded(churns->order.session_id);
  ASSERT_TRUE(ended);
  EXPECT_GE(ended->time.compute_ns, 90'000'000u);
  EXPECT_GE(static_cast<uint64_t>(took.count()), 5 * ended->time.compute_ns)
      << "the second piece has waited until the first was paid for";
}

// Each takes two places in a queue of the driver's, and a full one would keep this thread. A session
// may ask for as many as it has slots, and a pod may have many sessions.
TEST_F(ClearsTest, Malicious_LittleOfManySessionsLeavesRoomInTheDriversQueue) {
  constexpr uint16_t kSlots = wire::kReplySlots - 1;  // the first one is Never's
  const auto second = AddTenant();
  const auto neighbour = AddTenant();
  TestingDriver::Hold();
  (void)TestingDriver::TakeCalls();
  Ticket last{};
  const auto ask = [&](TestingTenant* tenant) {
    for (uint16_t slot = 1; slot <= kSlots; ++slot) {
      last = tenant->Post<wire::MemAlloc>({kGranuleBytes}, {}, slot);
    }
  };
  int clears = 0;
  ask(tenant_.get());
  ASSERT_TRUE(tenant_->Wait([&] { return (clears += Clears()) == kSlots; }));
  ask(second.get());
  ASSERT_TRUE(second->Wait([&] { return (clears += Clears()) == 64; }));
  EXPECT_TRUE(second->Never([&] { return (clears += Clears()) != 64; }));
  const Ticket theirs = Ask(neighbour.get(), kGranuleBytes);
  EXPECT_TRUE(neighbour->Wait([&] { return (clears += Clears()) == 65; })) << "its first one";
  TestingDriver::Release();
  EXPECT_TRUE(neighbour->Wait([&] { return Has(*neighbour, theirs); }));
  EXPECT_TRUE(second->Wait([&] { return second->reader.FindReply(kSlots, last) != nullptr; }));
}

TEST_F(ClearsTest, Malicious_WhoEndsMeanwhileIsNotWaitedFor) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const auto leaver = AddTenant();
  Ask(leaver.get(), kLarge);
  EXPECT_TRUE(scheduler_.WaitWants(*leaver, true));
  (void)TestingDriver::TakeCalls();
  scheduler_.RemoveTenant(*leaver);
  ASSERT_TRUE(scheduler_.WaitEnded(leaver->order.session_id));
  EXPECT_EQ(Clears(), 0);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
