// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/share_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/metrics/testing/reports.h"

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ShareHistoryTest : public ::testing::Test {
 protected:
  // Another step, in which the tenants have computed for so long.
  void Step(const std::map<std::string, double>& seconds) {
    for (const auto& [pod, computed] : seconds) {
      const auto ns = static_cast<uint64_t>(computed * 1e9);
      ledger_.tenants[NameOf(pod)].counts.time.compute_ns += ns;
      ledger_.gpus[kGpu].counts.busy.compute_ns += ns;
    }
    now_ += ShareHistory::kStep;
    history_.Follow(ledger_, now_);
  }
  static TenantName NameOf(const std::string& pod) { return {"red", pod, "main", kGpu}; }

  Ledger ledger_;
  ShareHistory history_;
  Clock::Time now_{std::chrono::seconds(1'700'000'000)};
};

TEST_F(ShareHistoryTest, EachStepHasWhatWasComputedInIt) {
  Step({{"p", 4000}});  // before anybody looked
  EXPECT_EQ(history_.steps(), 0u);
  Step({{"p", 1}});
  now_ += ShareHistory::kStep / 2;
  history_.Follow(ledger_, now_);
  EXPECT_EQ(history_.steps(), 1u) << "no step yet";
  now_ -= ShareHistory::kStep / 2;
  Step({{"p", 2.5}, {"new", 1.25}});
  Step({{"p", 7}});
  EXPECT_THAT(history_.Of(NameOf("p")), ElementsAre(0.2, 0.5, 1.0));
  EXPECT_THAT(history_.Of(NameOf("new")), ElementsAre(0, 0.25, 0));
  EXPECT_THAT(history_.OfGpu(kGpu), ElementsAre(0.2, 0.75, 1.0));
  EXPECT_THAT(history_.Of(NameOf("nobody")), IsEmpty());
}

TEST_F(ShareHistoryTest, WhatReportsTellLateIsSharedAmongAll) {
  Step({});
  Step({{"p", 0}, {"q", 0}});
  Step({{"p", 4}, {"q", 2}, {"new", 2}});
  EXPECT_THAT(history_.OfGpu(kGpu), ElementsAre(0, 1));
  EXPECT_THAT(history_.Of(NameOf("p")), ElementsAre(0, 0.5));
  EXPECT_THAT(history_.Of(NameOf("q")), ElementsAre(0, 0.25));
  EXPECT_THAT(history_.Of(NameOf("new")), ElementsAre(0, 0.25));
}

TEST_F(ShareHistoryTest, KeepsTheLastMinutes) {
  Step({{"p", 0}});
  Step({{"p", 5}});
  for (size_t i = 0; i < ShareHistory::kSteps; ++i) Step({{"q", 1}});
  EXPECT_EQ(history_.steps(), ShareHistory::kSteps);
  EXPECT_THAT(history_.Of(NameOf("p")), IsEmpty());
  EXPECT_EQ(history_.Of(NameOf("q")).size(), ShareHistory::kSteps);
}

// A tenant that is forgotten, and begins again with less.
TEST_F(ShareHistoryTest, AFigureThatBeginsAgainIsNoShareBelowNothing) {
  Step({{"p", 3}});
  ledger_.tenants[NameOf("p")].counts.time.compute_ns = 0;
  Step({{"p", 0}});
  EXPECT_THAT(history_.Of(NameOf("p")), IsEmpty());
  Step({{"p", 1}});
  EXPECT_THAT(history_.Of(NameOf("p")), ElementsAre(0, 0.2));
}

}  // namespace
}  // namespace gpuloom
