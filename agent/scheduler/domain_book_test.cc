// SPDX-License-Identifier: Apache-2.0
// With a simulated clock.
#include "agent/scheduler/domain_book.h"

#include <gtest/gtest.h>

namespace gpuloom::scheduler {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class DomainBookTest : public ::testing::Test {
 protected:
  DomainBook book_{minutes(10)};
  DomainBook::Time now_ = DomainBook::Time() + minutes(1);
};

TEST_F(DomainBookTest, ADomainIsRememberedWhileAnythingOfItIsThere) {
  book_.Of("red").counts.started = 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(book_.Forget({"red", "never noted"}, now_), std::nullopt);
    now_ += minutes(60);
  }
  ASSERT_NE(book_.Find("red"), nullptr);
  EXPECT_EQ(book_.Find("red")->counts.started, 3u);
  EXPECT_EQ(book_.size(), 1u) << "asking notes nothing";
}

TEST_F(DomainBookTest, WithoutAnythingItIsForgottenAfterAWhile) {
  book_.Of("red").failures = 30;
  const auto end = now_ + minutes(10);
  EXPECT_EQ(book_.Forget({}, now_), end);
  now_ = end - seconds(1);
  EXPECT_EQ(book_.Forget({}, now_), end) << "it is not begun anew";
  EXPECT_NE(book_.Find("red"), nullptr);
  EXPECT_EQ(book_.Forget({}, end), std::nullopt);
  EXPECT_EQ(book_.Find("red"), nullptr);
  EXPECT_EQ(book_.size(), 0u);
}

TEST_F(DomainBookTest, OneThatComesBackMeanwhileGoesOn) {
  book_.Of("red").failures = 1;
  book_.Of("red").next_spare = now_ + seconds(10);
  (void)book_.Forget({}, now_);
  EXPECT_EQ(book_.Of("red").next_spare, DomainBook::Time()) << "pods that follow one another";
  now_ += minutes(9);
  EXPECT_EQ(book_.Of("red").failures, 1);
  EXPECT_EQ(book_.Forget({"red"}, now_), std::nullopt);
  EXPECT_EQ(book_.Forget({}, now_), now_ + minutes(10)) << "from its last end on";
}

TEST_F(DomainBookTest, Malicious_DomainsWithoutEndTakeNoMemoryForGood) {
  std::optional<DomainBook::Time> next;
  for (int i = 0; i < 3600; ++i) {
    book_.Of("evil-" + std::to_string(i)).failures = i % 7;
    next = book_.Forget({}, now_);
    EXPECT_LE(book_.size(), 600u);
    now_ += seconds(1);
  }
  // As the scheduler does, whose timer it is.
  while (next) next = book_.Forget({}, *next);
  EXPECT_EQ(book_.size(), 0u);
}

// What it bounds lasts for less long than it is remembered, so that nobody gains by leaving.
TEST_F(DomainBookTest, WhatItBoundsIsOverBeforeItIsForgotten) {
  EXPECT_EQ(StartDelay(0), seconds(0));
  EXPECT_EQ(StartDelay(1), seconds(1));
  EXPECT_EQ(StartDelay(1000), seconds(30));
  EXPECT_LT(StartDelay(1000), minutes(10));
  EXPECT_LT(LineBudget::kAtOnce * std::chrono::nanoseconds(LineBudget::kRefillNs), minutes(10));
}

}  // namespace
}  // namespace gpuloom::scheduler
