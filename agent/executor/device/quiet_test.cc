// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/quiet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/session/slice.h"
#include "agent/executor/session/work_pool.h"

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
    parties_[1].at_device = at_device_;
    quiet_.Tick(now_ns_, parties_, false, idle_ns);
  }
  bool Held(size_t party) const { return parties_[party].held; }
  std::vector<std::string> TakeMade() { return std::move(made_); }

  WorkPool pool_{nullptr, 0, -1};  // works inside Post
  Quiet quiet_{&pool_};
  uint64_t now_ns_ = 1'000'000'000;
  bool at_device_ = false;  // the neighbour's work
  int own_ = 0, neighbours_ = 0, third_ = 0;
  Quiet::Party parties_[3] = {{this, &own_, false, 20'000},
                              {&neighbours_, &neighbours_, false, 20'000},
                              {&third_, &third_, false, 20'000}};
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
  EXPECT_TRUE(Held(1));
  Round(Quiet::kLeastPatientNs / 2);
  EXPECT_TRUE(Held(1)) << "its commands are short, so this will help soon";
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
  quiet_.Retire(Work("unload"), {});
  at_device_ = true;
  Round(1'000'000'000);
  at_device_ = false;
  Round(1, Quiet::kQuietNs / 2);
  EXPECT_FALSE(quiet_.Holding());
  EXPECT_THAT(TakeMade(), IsEmpty());
  Round(1, Quiet::kQuietNs);
  EXPECT_THAT(TakeMade(), ElementsAre("unload"));
}

TEST_F(QuietTest, WhatNobodyNeedsWaitsForAnIdleDevice) {
  at_device_ = true;
  quiet_.WhenIdle(Work("chain"), {});
  for (int i = 0; i < 10; ++i) {
    Round(Quiet::kLongestRetiredNs / 2);
    EXPECT_FALSE(Held(1)) << i;
  }
  at_device_ = false;
  Round(1, Quiet::kQuietNs);
  EXPECT_THAT(TakeMade(), ElementsAre("chain"));
}

// It returns what somebody needs in the end.
TEST_F(QuietTest, WhereTheDeviceIsNeverIdleWhatNobodyWaitsForGetsAMoment) {
  at_device_ = true;
  quiet_.Retire(Work("unpin"), {});
  Round(1);
  Round(Quiet::kLongestRetiredNs / 2);
  EXPECT_FALSE(Held(1));
  Round(Quiet::kLongestRetiredNs / 2);
  Round(Quiet::kPatienceNs);
  EXPECT_TRUE(Held(1));
  at_device_ = false;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("unpin"));
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

// What a kernel that never ends makes of the moment: somebody asks for one again and again.
class QuietBesideAnEndlessKernel : public QuietTest {
 protected:
  static constexpr uint64_t kRoundNs = 1'000'000;
  struct Seen {
    uint64_t held_ns = 0;          // of party 2, who has nothing to do with it
    uint64_t longest_held_ns = 0;  // without a break
  };
  Seen Watch(uint64_t for_ns) {
    Seen seen;
    uint64_t held_ns = 0;
    for (uint64_t ns = 0; ns < for_ns; ns += kRoundNs) {
      if (!quiet_.AnyNeeded()) Need("load");
      Round(kRoundNs);
      held_ns = Held(2) ? held_ns + kRoundNs : 0;
      seen.held_ns += Held(2) ? kRoundNs : 0;
      seen.longest_held_ns = std::max(seen.longest_held_ns, held_ns);
    }
    return seen;
  }
};

TEST_F(QuietBesideAnEndlessKernel, AHoldThatDoesNotHelpIsGivenUpAndTheNextComesLater) {
  at_device_ = true;
  const Seen seen = Watch(20'000'000'000);
  EXPECT_GT(seen.held_ns, 0u);
  EXPECT_LE(seen.longest_held_ns, Quiet::kLeastPatientNs + kRoundNs);
  EXPECT_LE(seen.held_ns * 10, 20'000'000'000u) << "a twentieth of the time in the end";
  EXPECT_THAT(TakeMade(), IsEmpty());
  at_device_ = false;
  Round(kRoundNs);
  EXPECT_THAT(TakeMade(), ElementsAre("load")) << "at once when nothing is in the way";
}

TEST_F(QuietBesideAnEndlessKernel, WhileTheSameIsInTheWayHoldsBecomeRare) {
  at_device_ = true;
  parties_[1].oldest_work = 7;
  Watch(20'000'000'000);
  const Seen later = Watch(32'000'000'000);
  EXPECT_GT(later.held_ns, 0u);
  EXPECT_LE(later.held_ns, 5 * (Quiet::kLeastPatientNs + kRoundNs));
}

TEST_F(QuietBesideAnEndlessKernel, WhenItHasEndedBesideWhatDoesNotLastHoldingHelps) {
  at_device_ = true;
  parties_[1].oldest_work = 7;
  Watch(20'000'000'000);
  parties_[1].oldest_work = 8;
  const Seen after = Watch(Quiet::kLongestGivenUpNs + Quiet::kLeastPatientNs / 2);
  EXPECT_GT(after.held_ns, 0u) << "no later than if it had not lasted";
  at_device_ = false;
  Round(kRoundNs);
  EXPECT_THAT(TakeMade(), ElementsAre("load"));
}

TEST_F(QuietBesideAnEndlessKernel, ThoseThatFollowOneAnotherAreWaitedForAsOften) {
  at_device_ = true;
  parties_[1].oldest_work = 7;
  Watch(20'000'000'000);
  Seen all;
  for (int second = 0; second < 20; ++second) {
    ++parties_[1].oldest_work;
    const Seen seen = Watch(1'000'000'000);
    all.held_ns += seen.held_ns;
    all.longest_held_ns = std::max(all.longest_held_ns, seen.longest_held_ns);
  }
  EXPECT_LE(all.longest_held_ns, Quiet::kLeastPatientNs + kRoundNs);
  EXPECT_GE(all.held_ns, 15 * Quiet::kLeastPatientNs);
  EXPECT_LE(all.held_ns, 21 * (Quiet::kLeastPatientNs + kRoundNs));
}

// Its own work goes on and on, so what is at the device is never the same.
TEST_F(QuietBesideAnEndlessKernel, ANeighbourThatIsAlwaysAtWorkIsNotInTheWay) {
  at_device_ = true;
  parties_[1].oldest_work = 7;
  parties_[2].at_device = true;
  for (int i = 0; i < 20'000; ++i) {
    if (!Held(2)) ++parties_[2].oldest_work;
    Watch(kRoundNs);
  }
  parties_[1].at_device = at_device_ = false;
  Seen after;
  for (int i = 0; i < 1'100; ++i) {
    if (!Held(2)) ++parties_[2].oldest_work;
    after.held_ns += Watch(kRoundNs).held_ns;
  }
  EXPECT_GT(after.held_ns, 0u);
}

TEST_F(QuietBesideAnEndlessKernel, OfTheCallersOwnNobodyElseIsHeld) {
  parties_[0].at_device = true;
  const Seen seen = Watch(20'000'000'000);
  EXPECT_EQ(seen.held_ns, 0u);
  EXPECT_FALSE(Held(1));
}

TEST_F(QuietBesideAnEndlessKernel, OfAnotherProcessOfTheCallersNobodyElseIsHeld) {
  parties_[1].tenant = &own_;
  at_device_ = true;
  const Seen seen = Watch(20'000'000'000);
  EXPECT_EQ(seen.held_ns, 0u);
}

TEST_F(QuietTest, TheCallersOwnWorkMakesWayWhileNobodyElseIsHeld) {
  parties_[0].at_device = true;
  Need("load");
  Round(1);
  Round(Quiet::kPatienceNs);
  EXPECT_TRUE(Held(0)) << "or it would never end";
  EXPECT_FALSE(Held(1));
  EXPECT_FALSE(quiet_.Idle());
  parties_[0].at_device = false;
  at_device_ = true;
  Round(1);
  EXPECT_TRUE(Held(0));
  EXPECT_TRUE(Held(1)) << "now it is others who are in the way";
  at_device_ = false;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("load"));
}

// Two at a time of 50 ms each are at the device: what drains by itself is waited for.
TEST_F(QuietTest, WhoComputesInLongPiecesIsWaitedForAndOthersGoOnMeanwhile) {
  parties_[1].command_ns = 50'000'000;
  at_device_ = true;
  Need("load");
  Round(1);
  Round(Quiet::kPatienceNs);
  bool others_went_on = false;
  for (int i = 0; i < 100; ++i) {
    Round(1'000'000);
    EXPECT_TRUE(Held(1));
    others_went_on |= !Held(2);
  }
  EXPECT_TRUE(others_went_on);
  at_device_ = false;
  for (int i = 0; i < 100 && made_.empty(); ++i) {
    parties_[2].at_device = !Held(2);
    Round(1'000'000);
  }
  EXPECT_THAT(TakeMade(), ElementsAre("load"));
}

// What returns at once natively, although it lets nothing begin before what runs has ended.
TEST_F(QuietTest, WhoIsAloneWithItsOwnKernelsNeedNotWaitForThemForEver) {
  const auto rounds = [this] {
    for (int i = 0; i < 5; ++i) Round(Quiet::kPatienceNs / 4);
  };
  quiet_.NeedOrBesideOwn(this, Work("kernel"), {});
  parties_[0].at_device = true;
  rounds();
  EXPECT_THAT(TakeMade(), IsEmpty()) << "there are others, whom it would keep waiting";
  parties_[1].tenant = parties_[2].tenant = parties_[0].tenant;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("kernel"));
  Need("first kernel");
  rounds();
  EXPECT_THAT(TakeMade(), IsEmpty()) << "the driver would wait";
}

TEST_F(QuietTest, WhatIsHurriedIsMadeInAMomentOfItsOwn) {
  quiet_.Retire(Work("unpin"), {});
  quiet_.ExpediteRetired();
  quiet_.Retire(Work("later"), {});
  at_device_ = true;
  Round(1);
  Round(Quiet::kPatienceNs);
  EXPECT_TRUE(Held(1));
  at_device_ = false;
  Round(1);
  EXPECT_THAT(TakeMade(), ElementsAre("unpin"));
  Round(1);
  Round(Quiet::kLingerNs);
  EXPECT_FALSE(quiet_.Holding());
  EXPECT_FALSE(quiet_.AnyNeeded());
}

}  // namespace
}  // namespace gpuloom::executor
