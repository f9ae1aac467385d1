// SPDX-License-Identifier: Apache-2.0
// An executor that shares the device with others, in the real loop, with a driver that needs no GPU.
#include "agent/executor/session/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "agent/executor/testing/tenant_test_fixture.h"

namespace gpuloom::executor {
namespace {

using wire::Ticket;

class TurnsTest : public TenantTest {
 protected:
  struct CopyPlaces {
    uint64_t device;
    uint64_t host;
  };
  CopyPlaces MakePlaces() {
    const uint64_t host = tenant_->order.host_range_begin + (1u << 20);
    EXPECT_TRUE(tenant_->PinArena(1u << 20, 1u << 16));
    return {tenant_->Alloc(1u << 20), host};
  }
  Ticket Copy(const CopyPlaces& places) {
    return tenant_->Post<wire::Copy>(
        {wire::StreamId{0}, wire::CopyKind::kHostToDevice, places.device, places.host, 1u << 16});
  }
};

TEST_F(TurnsTest, OneThatWasNeverToldOfTurnsSaysNothing) {
  for (int i = 0; i < 100; ++i) tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id));
  EXPECT_EQ(scheduler_.TurnMessages(), 0);
}

TEST_F(TurnsTest, WithoutATurnNothingIsSubmittedAndTheLoopSleeps) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  (void)TestingDriver::TakeCalls();
  const Ticket last = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, true));
  EXPECT_TRUE(tenant_->Never([&] { return IsDone(*tenant_, last); }));
  EXPECT_FALSE(TestingDriver::WasCalled("launch") || TestingDriver::WasCalled("graph"));
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->writer.ExecutorSleeps(); }));
  scheduler_.GiveTurn();
  EXPECT_TRUE(tenant_->WaitDone(0, last)) << "it does not sleep through its turn";
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(TurnsTest, ATurnHasDrainedOnceWhatIsAtTheDeviceHasEnded) {
  TestingDriver::Hold();
  const Ticket running = tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t turn = scheduler_.EndTurn();
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasDrained(turn); }));
  const Ticket next = tenant_->LaunchPlain(0, 1);
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(turn));
  EXPECT_TRUE(IsDone(*tenant_, running));
  EXPECT_TRUE(tenant_->Never([&] { return IsDone(*tenant_, next); }));
  scheduler_.GiveTurn(3, 1'000'000);
  EXPECT_TRUE(tenant_->WaitDone(0, next));
}

TEST_F(TurnsTest, ATurnThatIsGivenAgainBeforeIsNotReportedAsDrained) {
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t first = scheduler_.EndTurn();
  scheduler_.GiveTurn();
  const uint32_t second = scheduler_.EndTurn();
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(second));
  EXPECT_FALSE(scheduler_.WasDrained(first));
}

TEST_F(TurnsTest, ATurnIsOfTheClassesThatItIsGivenTo) {
  scheduler_.shares = {0, 0, 3, 0, 0};
  const auto low = AddTenant();
  scheduler_.shares = {0, 0, 1, 0, 0};
  const auto high = AddTenant();
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const Ticket of_low = low->LaunchPlain(0, 1);
  const Ticket of_high = high->LaunchPlain(0, 1);
  scheduler_.GiveTurn(1, 1'000'000);
  EXPECT_TRUE(high->WaitDone(0, of_high));
  EXPECT_TRUE(low->Never([&] { return IsDone(*low, of_low); }));
  scheduler_.GiveTurn(3, 1'000'000);
  EXPECT_TRUE(low->WaitDone(0, of_low));
}

TEST_F(TurnsTest, LaunchesOfALoneTenantAreNoMessages) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  scheduler_.GiveTurn();
  // Kept through pauses: what follows within 20 ms says nothing more, once no other domain has had a turn for a while.
  const auto others = std::chrono::steady_clock::now();
  do {
    EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  } while (std::chrono::steady_clock::now() - others <
           std::chrono::nanoseconds(Turns::kOthersLingerNs) * 11 / 10);
  // Behind a round of the loop that began since then; what it said of earlier ones has come.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  const int pauses_before = scheduler_.Pauses(*tenant_);
  const auto begun = std::chrono::steady_clock::now();
  const int before = scheduler_.TurnMessages();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  const auto took = std::chrono::steady_clock::now() - begun;
  // On a machine that does other things in between, pauses are longer. Use is said once a second.
  const auto pauses = took / std::chrono::nanoseconds(Turns::kLongIdleNs) + 1;
  EXPECT_LE(scheduler_.TurnMessages() - before, 2 * pauses + 2 + took / std::chrono::seconds(1));
  EXPECT_TRUE(scheduler_.WaitPauses(*tenant_, pauses_before + 1))
      << "said by itself, when it has been idle";
}

// Others need not ask for the turn first and wait for the answer.
TEST_F(TurnsTest, WhileOthersHaveTurnsTooShortPausesAreSaid) {
  const auto said_early = [&] {
    // Before the round of the loop in which the launch is seen.
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
    scheduler_.GiveTurn();
    const int before = scheduler_.Pauses(*tenant_);
    EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
    EXPECT_TRUE(scheduler_.WaitPauses(*tenant_, before + 1));
    return std::chrono::steady_clock::now() - begun < std::chrono::nanoseconds(Turns::kLongIdleNs);
  };
  // A machine that does other things in between takes longer, but not always.
  EXPECT_TRUE(scheduler_.WaitUntil(said_early));
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1))) << "it still has its turn";
}

// A copy engine works for several contexts at once, and beside others' kernels.
TEST_F(TurnsTest, CopiesNeedNoTurnAndAskForNone) {
  const CopyPlaces places = MakePlaces();
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const int messages = scheduler_.TurnMessages();
  Ticket last{};
  for (int i = 0; i < 1000; ++i) last = Copy(places);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_EQ(scheduler_.TurnMessages(), messages);
  const Ticket kernel = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, true)) << "a kernel does";
  EXPECT_TRUE(tenant_->Never([&] { return IsDone(*tenant_, kernel); }));
  scheduler_.GiveTurn();
  EXPECT_TRUE(tenant_->WaitDone(0, kernel));
}

TEST_F(TurnsTest, ACopyAtTheDeviceKeepsNoTurnFromDraining) {
  const CopyPlaces places = MakePlaces();
  scheduler_.GiveTurn(3, 1'000'000);
  TestingDriver::Hold();
  const Ticket copy = Copy(places);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("copy"); }));
  EXPECT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  EXPECT_FALSE(IsDone(*tenant_, copy));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, copy));
}

// It would not compute meanwhile, and nobody else would.
TEST_F(TurnsTest, NoTurnIsWantedForAKernelBehindALongCopy) {
  const CopyPlaces places = MakePlaces();
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  TestingDriver::Hold();
  Copy(places);  // nothing is known of it, so it counts as long
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("copy"); }));
  const int messages = scheduler_.TurnMessages();
  const Ticket kernel = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.TurnMessages() != messages; }));
  scheduler_.GiveTurn(3, 1'000'000);
  EXPECT_TRUE(tenant_->Never([] { return TestingDriver::WasCalled("launch"); }));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, kernel));
  EXPECT_TRUE(scheduler_.WaitPauses(*tenant_, 1))
      << "it has wanted the turn then, for as long as it took";
}

// Nobody else waits for the turn: nothing is gained by letting the kernel wait here.
TEST_F(TurnsTest, AloneAKernelIsSubmittedBehindALongCopy) {
  const CopyPlaces places = MakePlaces();
  const auto neighbour = AddTenant();
  scheduler_.GiveTurn();
  TestingDriver::Hold();
  neighbour->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  (void)TestingDriver::TakeCalls();
  Copy(places);
  tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  TestingDriver::Release();
}

TEST_F(TurnsTest, WhoeverHasUsedATurnIsNamed) {
  const auto neighbour = AddTenant();
  scheduler_.GiveTurn(3, 1'000'000);
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t turn = scheduler_.EndTurn();
  EXPECT_TRUE(neighbour->Never([&] { return scheduler_.WasDrained(turn); }));
  TestingDriver::Release();
  ASSERT_TRUE(scheduler_.WaitDrained(turn));
  EXPECT_GT(scheduler_.TurnUse(*tenant_), 0u);
  EXPECT_EQ(scheduler_.TurnUse(*neighbour), 0u);
}

// What the scheduler divides a turn by must be of this turn, not of one long ago.
TEST_F(TurnsTest, AContestedTurnOfSeveralSaysAgainAndAgainWhoUsesIt) {
  const auto neighbour = AddTenant();
  // Without it there is one a second, as often as sessions are counted: one that is held with work always is.
  const auto held = AddTenant();
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*held, true)));
  held->LaunchPlain(0, 1);
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  neighbour->LaunchPlain(0, 1);
  ASSERT_TRUE(scheduler_.WaitWants(*tenant_, true));
  ASSERT_TRUE(scheduler_.WaitWants(*neighbour, true));
  const int before = scheduler_.TurnMessages();
  const int counted = scheduler_.CounterMessages(*held);
  scheduler_.GiveTurn(3, 1'000'000);
  constexpr int kMore = 20;
  EXPECT_TRUE(tenant_->Wait([&] {
    const int said = scheduler_.TurnMessages() - before;
    return said >= kMore + scheduler_.CounterMessages(*held) - counted;
  }));
  TestingDriver::Release();
}

TEST_F(TurnsTest, QuietMomentsComeWithoutATurn) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const Ticket last = tenant_->LaunchPlain(0, 1);
  const auto late = AddTenant();
  EXPECT_EQ(late->Call<wire::LibraryUnload>({wire::LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_FALSE(IsDone(*tenant_, last));
  scheduler_.GiveTurn();
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(TurnsTest, AHoldIsAcknowledgedWithoutATurn) {
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  const Ticket last = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, true));
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, false)) << "it could not use a turn";
  scheduler_.GiveTurn();
  EXPECT_TRUE(tenant_->Never([&] { return IsDone(*tenant_, last); }));
  scheduler_.Hold(*tenant_, false);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(TurnsTest, SessionsEndWithoutATurn) {
  ASSERT_NE(tenant_->Alloc(4u << 20), 0u);
  ASSERT_TRUE(scheduler_.WaitDrained(scheduler_.EndTurn()));
  for (int i = 0; i < 1000; ++i) tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, true));
  tenant_->doorbell.Reset();
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_TRUE(scheduler_.WaitWants(*tenant_, false));
}

TEST_F(TurnsTest, ASessionThatEndsWithWorkAtTheDeviceDrainsItsTurn) {
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t turn = scheduler_.EndTurn();
  scheduler_.RemoveTenant(*tenant_);
  const auto neighbour = scheduler_.AddTenant();
  EXPECT_TRUE(neighbour->Never([&] { return scheduler_.WasDrained(turn); }));
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(turn));
  EXPECT_EQ(scheduler_.WaitEnded(tenant_->order.session_id)->drained, 1u);
}

// A kernel that waits for another stream of its program would never drain.
TEST_F(TurnsTest, WhatKeepsATurnFromDrainingIsGivenWhatItMayWaitFor) {
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  TestingDriver::Hold();
  tenant_->LaunchPlain(1, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t turn = scheduler_.EndTurn();
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasDrained(turn); }));
  (void)TestingDriver::TakeCalls();
  tenant_->LaunchPlain(2, 1);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  EXPECT_FALSE(scheduler_.WasDrained(turn));
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(turn));
}

// Each of its kernels counts as a millisecond while nothing is known of it. All at once they would lengthen the overrun by
// their sum.
TEST_F(TurnsTest, Malicious_ManyStreamsGetNoMoreWithoutATurnThanTheyHaveWaitedFor) {
  constexpr uint32_t kStreams = 100;
  for (uint32_t i = 1; i <= kStreams; ++i) ASSERT_TRUE(tenant_->CreateStream(i, true));
  TestingDriver::Hold();
  const auto begun = std::chrono::steady_clock::now();
  tenant_->LaunchPlain(1, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t turn = scheduler_.EndTurn();
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasDrained(turn); }));
  (void)TestingDriver::TakeCalls();
  Ticket last{};
  for (uint32_t i = 2; i <= kStreams; ++i) last = tenant_->LaunchPlain(i, 1);
  size_t launched = 0;
  const auto launches = [&] {
    for (const std::string& call : TestingDriver::TakeCalls())
      launched += call.starts_with("launch");
    return launched;
  };
  EXPECT_TRUE(tenant_->Wait([&] { return launches() != 0; }));
  EXPECT_TRUE(tenant_->Never([&] { return launches() == kStreams - 1; }));
  // 10 ms of them each time that it has waited for 100 ms or more.
  const auto waited = std::chrono::steady_clock::now() - begun;
  const auto times = std::max<size_t>(1, waited / std::chrono::milliseconds(100));
  EXPECT_LE(launched, 10 * times);
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitDrained(turn));
  scheduler_.GiveTurn();
  EXPECT_TRUE(tenant_->WaitDone(kStreams, last));
}

}  // namespace
}  // namespace gpuloom::executor
