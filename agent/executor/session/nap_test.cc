// SPDX-License-Identifier: Apache-2.0
// For how long a session lets the loop nap while its program may go on sending work.
#include <gtest/gtest.h>

#include <atomic>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/rounds.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kMs = 1'000'000;

class NapTest : public ::testing::Test {
 protected:
  NapTest() {
    rounds_.Begin(rounds_.NewOrder(64u << 20, 64u << 20));
    Post<wire::EventCreate>({wire::EventId{1}, 0});
  }
  ~NapTest() override {
    TestingDriver::Release();
    rounds_.session()->End(wire::Fatal::kNone, now_ns_);
    for (int i = 0; i < 100 && rounds_.session()->state() != Session::State::kEnded; ++i) Round(1);
    rounds_.DropSession();
  }

  template <wire::Command C>
  void Post(const typename C::Request& request) {
    wire::Ticket ticket{};
    EXPECT_TRUE(rounds_.tenant().TryPost<C>(request, {}, C::kReply ? 0 : wire::kNoReply, &ticket));
  }
  // A command that is done when the driver does not hold its stream.
  void PostWork(int commands, uint32_t stream = 0) {
    for (int i = 0; i < commands; ++i) {
      Post<wire::EventRecord>({wire::EventId{1}, wire::StreamId{stream}});
    }
  }
  void Round(uint64_t after_ns) { rounds_.Round(now_ns_ += after_ns); }
  void SetTenantWaits(uint32_t threads) {
    auto* region = reinterpret_cast<wire::CommandRegion*>(rounds_.tenant().commands.data());
    std::atomic_ref<uint32_t>(region->head.tenant_waits).store(threads);
  }
  uint64_t NapNs(uint64_t after_ns) const { return rounds_.session()->NapNs(now_ns_ + after_ns); }

  // Eight commands of a millisecond are at the device.
  void KeepDeviceBusy() {
    TestingDriver::Hold();
    PostWork(1);
    Round(kMs);
    TestingDriver::Release();
    Round(kMs);
    TestingDriver::Hold();
    PostWork(8);
    Round(kMs);
  }

  uint64_t now_ns_ = 1000 * kMs;
  TestingRounds rounds_{TestingDriver::Reset(), {}};
};

TEST_F(NapTest, NapsGrowWithTheTimeSinceWorkBeganAndEndLongBeforeTheWork) {
  KeepDeviceBusy();
  EXPECT_EQ(NapNs(0), 0u);
  EXPECT_EQ(NapNs(1 * kMs), kMs / 50);
  EXPECT_EQ(NapNs(2 * kMs), 2 * kMs / 50);
  EXPECT_EQ(NapNs(8 * kMs - 40'000), 10'000u);
  EXPECT_EQ(NapNs(9 * kMs), 0u);
}

TEST_F(NapTest, NoneWithoutWorkNorWhileAThreadWaits) {
  Round(kMs);
  EXPECT_EQ(NapNs(kMs), 0u) << "nothing is there";
  KeepDeviceBusy();
  SetTenantWaits(1);
  EXPECT_EQ(NapNs(2 * kMs), 0u);
  SetTenantWaits(0);
  EXPECT_NE(NapNs(2 * kMs), 0u);
}

// What it sends could begin at once.
TEST_F(NapTest, AnotherStreamsBeginningIsNotNappedThrough) {
  KeepDeviceBusy();
  Post<wire::StreamCreate>({wire::StreamId{1}, /*nonblocking=*/1, 0});
  Round(2 * kMs);
  EXPECT_NE(NapNs(0), 0u);
  PostWork(1, 1);
  Round(1000);
  EXPECT_EQ(NapNs(900'000), 900'000u / 50);
  EXPECT_LT(NapNs(0), 1000u);
}

TEST_F(NapTest, NoneWhereWorkTakesLongerThanExpected) {
  KeepDeviceBusy();
  EXPECT_NE(NapNs(4 * kMs), 0u);
  Round(20 * kMs);
  EXPECT_EQ(NapNs(0), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
