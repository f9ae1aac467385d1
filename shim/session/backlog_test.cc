// SPDX-License-Identifier: Apache-2.0
#include "shim/session/backlog.h"

#include <gtest/gtest.h>

#include <memory>

#include "proto/wire/regions.h"

namespace gpuloom {
namespace {

class BacklogTest : public testing::Test {
 protected:
  static constexpr uint32_t kRecordBytes = 1024;
  static constexpr uint64_t kEachBytes = kRecordBytes + wire::kBacklogBytesOfCommand;
  static constexpr uint64_t kAllFit = wire::kMostBacklogBytes / kEachBytes;
  // What is not noticed at once, as nobody checks each time.
  static constexpr uint64_t kMore = kAllFit / 4;

  // Returns false if it must wait.
  bool Send(uint32_t stream, uint32_t bytes = kRecordBytes) {
    if (!backlog_->MaySend() && !backlog_->Check(stream, reader_, newest_, kStreams)) {
      return false;
    }
    backlog_->Count(stream, bytes);
    newest_[stream] = ++ticket_;
    return true;
  }
  uint64_t SendUntilItWaits(uint32_t stream) {
    uint64_t sent = 0;
    while (sent < 10 * kAllFit && Send(stream)) ++sent;
    return sent;
  }
  void Complete(uint32_t stream, uint64_t ticket) { region_->completed[stream] = ticket; }
  void CompleteAll(uint32_t stream) { Complete(stream, newest_[stream]); }

  static constexpr uint32_t kStreams = 100;
  const std::unique_ptr<Backlog> backlog_ = std::make_unique<Backlog>();
  const std::unique_ptr<wire::CompletionRegion> region_ =
      std::make_unique<wire::CompletionRegion>();
  const wire::CompletionReader reader_{region_.get()};
  std::atomic<uint64_t> newest_[kStreams] = {};
  uint64_t ticket_ = 0;
};

TEST_F(BacklogTest, OneStreamWaitsWhenItHasMuch) {
  const uint64_t sent = SendUntilItWaits(7);
  EXPECT_GE(sent, kAllFit);
  EXPECT_LE(sent, kAllFit + kMore);
  EXPECT_FALSE(Send(7));
  Complete(7, 1);
  EXPECT_FALSE(Send(7));
  Complete(7, ticket_ - 1);
  EXPECT_TRUE(Send(7));
  CompleteAll(7);
  EXPECT_TRUE(Send(7));
  EXPECT_GE(SendUntilItWaits(7), kAllFit - kMore);
}

TEST_F(BacklogTest, OthersMayAlwaysSendALittle) {
  const uint64_t before = SendUntilItWaits(0);
  for (uint32_t stream = 1; stream < kStreams; ++stream) {
    const uint64_t sent = SendUntilItWaits(stream);
    EXPECT_GE(sent, wire::kMostBacklogBytesOfAny / kEachBytes);
    EXPECT_LE(sent, wire::kMostBacklogBytesOfAny / kEachBytes + 1);
    CompleteAll(stream);
    EXPECT_TRUE(Send(stream));
  }
  EXPECT_FALSE(Send(0));
  EXPECT_LT(before, ticket_);
}

// A kernel that never ends, and nothing behind it.
TEST_F(BacklogTest, WhatGoesOnIsNotCounted) {
  ASSERT_TRUE(Send(1));
  for (uint64_t i = 0; i < 20 * kAllFit; ++i) {
    ASSERT_TRUE(Send(2)) << i;
    // The device is always a little behind.
    if (newest_[2] > kAllFit / 2) Complete(2, newest_[2] - kAllFit / 2);
  }
  EXPECT_TRUE(Send(1));
}

// As launches with many texture references, which are short in the ring.
TEST_F(BacklogTest, CommandsThatHoldMuchAreChecked) {
  constexpr uint32_t kHeldBytes = 256 * wire::kBacklogBytesOfReference;
  uint64_t sent = 0;
  while (sent < kAllFit && Send(4, kHeldBytes)) ++sent;
  EXPECT_LE(sent * kHeldBytes, wire::kMostBacklogBytes + wire::kMostBacklogBytes / 4);
}

// Each command costs more while much is sent and not done.
TEST_F(BacklogTest, AfterMuchThatIsDoneThereIsNoNeedToCheck) {
  SendUntilItWaits(3);
  EXPECT_TRUE(backlog_->is_large());
  CompleteAll(3);
  for (uint64_t i = 0; i < kMore; ++i) {
    ASSERT_TRUE(Send(3));
    CompleteAll(3);
  }
  EXPECT_FALSE(backlog_->is_large());
}

}  // namespace
}  // namespace gpuloom
