// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/sickness.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Source = Sickness::Source;

class SicknessTest : public ::testing::Test {
 protected:
  // The pause until the next probe, in whole seconds; -1: there is none.
  int NextProbe() const {
    for (int s = 0; s <= 3600; ++s) {
      if (sickness_.WantsProbe(now_ + seconds(s))) return s;
    }
    return -1;
  }

  Clock::Time now_{seconds(1'700'000'000)};
  Sickness sickness_;
};

TEST_F(SicknessTest, NothingIsProbedWithoutACause) {
  EXPECT_EQ(sickness_.reason(), "");
  EXPECT_EQ(NextProbe(), -1);
}

TEST_F(SicknessTest, WhatIsSuspectedIsProbedAndNotSickUntilThatFails) {
  sickness_.Suspect(now_);
  EXPECT_EQ(NextProbe(), 0);
  EXPECT_EQ(sickness_.reason(), "");
  sickness_.Probed(now_, "");
  EXPECT_EQ(NextProbe(), -1);
  // Suspected again and again, it is probed now and then.
  sickness_.Suspect(now_ + seconds(1));
  EXPECT_EQ(NextProbe(), 10);
  now_ += seconds(10);
  sickness_.Probed(now_, "cuInit: no");
  EXPECT_EQ(sickness_.reason(), "cuInit: no");
  EXPECT_EQ(NextProbe(), 10);
}

TEST_F(SicknessTest, AFaultIsSickAtOnceAndHealsByAProbe) {
  sickness_.Fault(now_, "Xid 79", Source::kEvent);
  EXPECT_EQ(sickness_.reason(), "Xid 79");
  for (const int pause : {10, 20, 40, 80, 160, 300, 300}) {
    EXPECT_EQ(NextProbe(), pause);
    now_ += seconds(pause);
    sickness_.Probed(now_, "cuInit: no");
    EXPECT_EQ(sickness_.reason(), "Xid 79") << "says more than the probe";
  }
  sickness_.Probed(now_, "");
  EXPECT_EQ(sickness_.reason(), "");
  EXPECT_EQ(NextProbe(), -1);
}

TEST_F(SicknessTest, WhatIsRememberedIsSickUntilAProbeWhichIsDueAtOnce) {
  sickness_.Remember(now_, "Xid 48", Source::kEvent);
  EXPECT_EQ(sickness_.reason(), "Xid 48");
  for (const int pause : {0, 20, 40}) {
    EXPECT_EQ(NextProbe(), pause);
    now_ += seconds(pause);
    sickness_.Probed(now_, "cuInit: no");
    EXPECT_EQ(sickness_.reason(), "Xid 48");
  }
  sickness_.Probed(now_, "");
  EXPECT_EQ(sickness_.reason(), "");
  EXPECT_EQ(NextProbe(), -1);
}

TEST_F(SicknessTest, ARelapseIsLeftAloneForLonger) {
  sickness_.Fault(now_, "Xid 48", Source::kEvent);
  now_ += seconds(10);
  sickness_.Probed(now_, "");
  now_ += minutes(9);
  sickness_.Fault(now_, "Xid 48", Source::kEvent);
  EXPECT_EQ(NextProbe(), 20);
  now_ += seconds(20);
  sickness_.Probed(now_, "");
  now_ += minutes(11);
  sickness_.Fault(now_, "Xid 48", Source::kEvent);
  EXPECT_EQ(NextProbe(), 10);
}

TEST_F(SicknessTest, FurtherFaultsDoNotPutTheProbeOff) {
  sickness_.Fault(now_, "Xid 48", Source::kEvent);
  now_ += seconds(9);
  sickness_.Fault(now_, "Xid 79", Source::kEvent);
  EXPECT_EQ(sickness_.reason(), "Xid 79");
  EXPECT_EQ(NextProbe(), 1);
  sickness_.Suspect(now_);
  EXPECT_EQ(NextProbe(), 1);
}

// One that has fallen off the bus tells so once, and is lost whenever NVML is asked.
TEST_F(SicknessTest, WhatHasHappenedSaysMoreThanHowItIsNow) {
  sickness_.Fault(now_, "nvml: the driver is not loaded", Source::kState);
  sickness_.Fault(now_, "nvml: GPU is lost", Source::kState);
  EXPECT_EQ(sickness_.reason(), "nvml: GPU is lost");
  sickness_.Fault(now_, "Xid 79", Source::kEvent);
  sickness_.Fault(now_, "nvml: GPU is lost", Source::kState);
  EXPECT_EQ(sickness_.reason(), "Xid 79");
  EXPECT_EQ(NextProbe(), 10);
  now_ += seconds(10);
  sickness_.Probed(now_, "");
  sickness_.Fault(now_, "nvml: GPU is lost", Source::kState);
  EXPECT_EQ(sickness_.reason(), "nvml: GPU is lost") << "that was then";
}

// Whoever may allocate fills a GPU.
TEST_F(SicknessTest, Malicious_AFullGpuIsNeitherSickNorHealed) {
  sickness_.Suspect(now_);
  sickness_.Undecided(now_);
  EXPECT_EQ(sickness_.reason(), "");
  EXPECT_EQ(NextProbe(), -1);
  sickness_.Suspect(now_);
  EXPECT_EQ(NextProbe(), 10) << "and not sooner";
  sickness_.Fault(now_, "Xid 48", Source::kEvent);
  now_ += seconds(10);
  sickness_.Undecided(now_);
  EXPECT_EQ(sickness_.reason(), "Xid 48");
  EXPECT_EQ(NextProbe(), 10);
  now_ += seconds(10);
  sickness_.Probed(now_, "");
  EXPECT_EQ(sickness_.reason(), "");
}

}  // namespace
}  // namespace gpuloom
