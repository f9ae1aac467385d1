#include "agent/executor/quiet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class QuietTest : public ::testing::Test {
 protected:
  void Need(const char* name) { quiet_.Need(this, Work(name), {}); }
  std::function<void()> Work(const char* name) {
    return [this, name] { made_.emplace_back(name); };
  }
  // A round of the loop, `after_ns` after the one before.
  void Round(uint64_t after_ns, uint64_t idle_ns = 0) {
    now_ns_ += after_ns;
    Slice slice(UINT64_MAX);
    pool_.RunFinished(&slice);
    quiet_.Tick(now_ns_, at_device_, idle_ns);
  }
  std::vector<std::string> TakeMade() { return std::move(made_); }

  WorkPool pool_{nullptr, 0, -1};  // works inside Post
  Quiet quiet_{&pool_};
  uint64_t now_ns_ = 1'000'000'000;
  bool at_device_ = false;
  std::vector<std::string> made_;
};

TEST_F(QuietTest, OnAnIdleDeviceWorkIsMadeAtOnceAndNothingIsHeldAfterwards) {
  Need("load");
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("load"));
  EXPECT_TRUE(quiet_.Holding()) << "while it runs";
  Round(1);
  EXPECT_FALSE(quiet_.Holding());
  EXPECT_TRUE(quiet_.empty());
}

TEST_F(QuietTest, ABusyDeviceIsGivenNothingMoreOnceSomebodyHasWaited) {
  at_device_ = true;
  Need("load");
  Round(1);
  EXPECT_FALSE(quiet_.Holding());
  Round(Quiet::kPatienceNs);
  EXPECT_TRUE(quiet_.Holding());
  EXPECT_THAT(TakeMade(), IsEmpty());
  Round(10'000'000'000);
  EXPECT_TRUE(quiet_.Holding()) << "however long the kernel runs";
  at_device_ = false;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("load"));
}

TEST_F(QuietTest, OneMomentServesEverybodyWhoWaits) {
  at_device_ = true;
  Need("a");
  Round(1);
  Round(Quiet::kPatienceNs);
  Need("b");
  Need("c");
  at_device_ = false;
  for (int i = 0; i < 3; ++i) {
    Round(10'000);
    EXPECT_TRUE(quiet_.Holding());
  }
  EXPECT_THAT(TakeMade(), ElementsAre("a", "b", "c"));
}

TEST_F(QuietTest, AMomentStaysOpenForTheNextLibraryOfTheProgramThatStarts) {
  at_device_ = true;
  Need("first");
  Round(1);
  Round(Quiet::kPatienceNs);
  at_device_ = false;
  Round(1);
  Round(Quiet::kLingerNs / 2);
  EXPECT_TRUE(quiet_.Holding());
  Need("second");
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("first", "second"));
  Round(1);
  Round(Quiet::kLingerNs);
  EXPECT_FALSE(quiet_.Holding());
}

TEST_F(QuietTest, WhoLoadsWithoutEndLeavesTheOthersTheirHalf) {
  uint64_t held_ns = 0;
  uint64_t free_ns = 0;
  constexpr uint64_t kRoundNs = 100'000;
  for (int i = 0; i < 20'000; ++i) {
    if (!quiet_.AnyNeeded()) Need("load");
    at_device_ = !quiet_.Holding();  // the others always have work
    (quiet_.Holding() ? held_ns : free_ns) += kRoundNs;
    Round(kRoundNs);
  }
  EXPECT_GT(TakeMade().size(), 1000u);
  EXPECT_GE(free_ns * 11, held_ns * 10);
}

TEST_F(QuietTest, WhatNobodyWaitsForIsMadeWhenTheDeviceHasBeenIdleForAWhile) {
  quiet_.Bury(Work("unload"), {});
  at_device_ = true;
  Round(1'000'000'000);
  at_device_ = false;
  Round(1, Quiet::kQuietNs / 2);
  EXPECT_FALSE(quiet_.Holding());
  EXPECT_THAT(TakeMade(), IsEmpty());
  Round(1, Quiet::kQuietNs);
  EXPECT_THAT(TakeMade(), ElementsAre("unload"));
}

TEST_F(QuietTest, WhatItsOwnerNoLongerNeedsIsNotMade) {
  at_device_ = true;
  Need("a");
  quiet_.Need(&pool_, Work("other's"), {});
  Round(1);
  Round(Quiet::kPatienceNs);
  EXPECT_EQ(quiet_.Drop(this), 1u);
  at_device_ = false;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("other's"));
  EXPECT_EQ(quiet_.Drop(&pool_), 0u);
  Round(1);
  Round(Quiet::kLingerNs);
  EXPECT_FALSE(quiet_.Holding());
}

}  // namespace
}  // namespace gpuloom::executor
