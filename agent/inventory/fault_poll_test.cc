// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/fault_poll.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "agent/inventory/testing/driver_gate.h"

namespace gpuloom {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kShort{1};

class FaultPollTest : public ::testing::Test {
 protected:
  void SetUp() override {
    poll_ = std::make_unique<FaultPoll>([gate = gate_] {
      gate->Pass();
      return std::vector<GpuFault>{{"GPU-1", "lost"}};
    });
  }

  std::shared_ptr<DriverGate> gate_ = std::make_shared<DriverGate>();
  std::unique_ptr<FaultPoll> poll_;
};

TEST_F(FaultPollTest, EachPollIsOneOfTheDriver) {
  for (int i = 0; i < 3; ++i) {
    const auto faults = poll_->Poll(kLong);
    ASSERT_TRUE(faults.has_value());
    ASSERT_EQ(faults->size(), 1u);
    EXPECT_EQ(faults->front().gpu_uuid, "GPU-1");
  }
  poll_.reset();
  EXPECT_EQ(gate_.use_count(), 1) << "closed before the thread was joined";
  EXPECT_FALSE(FaultPoll::IsOneLeftBehind());
}

TEST_F(FaultPollTest, WhatADriverSaysLateIsHeardLaterAndOnce) {
  gate_->Hang(true);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(poll_->Poll(kShort).has_value());
  gate_->AwaitHang();
  gate_->Hang(false);
  EXPECT_TRUE(poll_->Poll(kLong).has_value());
  gate_->Hang(true);
  EXPECT_FALSE(poll_->Poll(kShort).has_value()) << "another one, which hangs";
  gate_->AwaitHang();
  gate_->Hang(false);
}

TEST_F(FaultPollTest, OneThatHangsIsLeftBehindWithAllThatItUses) {
  gate_->Hang(true);
  EXPECT_FALSE(poll_->Poll(kShort).has_value());
  gate_->AwaitHang();
  poll_.reset();
  EXPECT_TRUE(FaultPoll::IsOneLeftBehind());
  EXPECT_GT(gate_.use_count(), 1);
  gate_->Hang(false);
  while (FaultPoll::IsOneLeftBehind()) std::this_thread::yield();
  EXPECT_EQ(gate_.use_count(), 1) << "it has ended when the driver let it";
}

}  // namespace
}  // namespace gpuloom
