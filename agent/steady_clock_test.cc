// SPDX-License-Identifier: Apache-2.0
#include "agent/steady_clock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::seconds;

const Clock::Time kWall{seconds(1'700'000'000)};

class SteadyClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "steady_clockXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }
  // An agent's clock on a machine that the test moves.
  SteadyClock Start() {
    SteadyClock clock(SteadyClock::Machine{
        [this] { return boot_id_; }, [this] { return since_boot_; }, [this] { return wall_; }});
    const absl::Status status = clock.Open(state_);
    EXPECT_TRUE(status.ok()) << status;
    return clock;
  }
  void Pass(Clock::Duration duration) {
    since_boot_ += duration;
    wall_ += duration;
  }

  std::string state_;
  std::string boot_id_ = "boot-1";
  Clock::Duration since_boot_ = seconds(100);
  Clock::Time wall_ = kWall;
};

TEST_F(SteadyClockTest, RunsOnWhoeverSetsTheMachinesClock) {
  SteadyClock clock = Start();
  EXPECT_EQ(clock.Now(), kWall);
  Pass(seconds(5));
  EXPECT_EQ(clock.Now(), kWall + seconds(5));
  for (const auto step : {hours(-1000), hours(5000)}) {
    wall_ += step;
    EXPECT_EQ(clock.Now(), kWall + seconds(5));
    // For the next agent, too.
    EXPECT_EQ(Start().Now(), kWall + seconds(5));
  }
  Pass(seconds(5));
  EXPECT_EQ(Start().Now(), kWall + seconds(10));
  EXPECT_EQ(clock.Now(), kWall + seconds(10));
}

TEST_F(SteadyClockTest, ShowsWallTimeWhoeverSetsTheMachinesClock) {
  SteadyClock clock = Start();
  const Clock::Time then = clock.Now();
  Pass(seconds(60));
  for (const auto step : {hours(-1000), hours(5000)}) {
    wall_ += step;
    EXPECT_EQ(clock.Shown(clock.Now()), wall_);
    EXPECT_EQ(clock.Shown(then), wall_ - seconds(60)) << "as long ago as it was";
    EXPECT_EQ(Start().Shown(then), wall_ - seconds(60)) << "by the next agent, too";
  }
  // The machine's clock is being adjusted: no shown time jitters.
  wall_ += std::chrono::milliseconds(300);
  EXPECT_EQ(clock.Shown(then), wall_ - std::chrono::milliseconds(300) - seconds(60));
  // A boot that began in the future makes later ones run ahead, and they show wall time all the same.
  for (const char* boot : {"boot-2", "boot-3"}) {
    boot_id_ = boot;
    wall_ = boot_id_ == "boot-2" ? kWall + hours(9000) : kWall;
    (void)Start();
  }
  SteadyClock ahead = Start();
  EXPECT_EQ(ahead.Now(), kWall + hours(9000));
  EXPECT_EQ(ahead.Shown(ahead.Now()), kWall);
}

TEST_F(SteadyClockTest, ARebootBeginsWithWallTimeUnlessThatIsLost) {
  (void)Start();
  boot_id_ = "boot-2";
  since_boot_ = seconds(3);
  wall_ = kWall + hours(1);
  EXPECT_EQ(Start().Now(), kWall + hours(1));
  Pass(seconds(7));
  EXPECT_EQ(Start().Now(), kWall + hours(1) + seconds(7));
  boot_id_ = "boot-3";
  since_boot_ = seconds(3);
  wall_ = Clock::Time(seconds(0));
  EXPECT_EQ(Start().Now(), kWall + hours(1));
}

TEST_F(SteadyClockTest, WhatCannotBeReadBeginsAnew) {
  std::ofstream(state_ + "/clock.yaml") << "boot: [";
  EXPECT_EQ(Start().Now(), kWall);
  Pass(seconds(1));
  EXPECT_EQ(Start().Now(), kWall + seconds(1));
}

// As of a disk's error: the next agent goes on with the time that all of this boot have had.
TEST_F(SteadyClockTest, WhatCannotBeReadForAMomentIsKept) {
  EXPECT_EQ(Start().Now(), kWall);
  const std::string file = state_ + "/clock.yaml";
  fs::rename(file, file + ".there");
  fs::create_symlink(file, file);
  wall_ += hours(1);
  SteadyClock clock(SteadyClock::Machine{[this] { return boot_id_; },
                                         [this] { return since_boot_; }, [this] { return wall_; }});
  EXPECT_FALSE(clock.Open(state_).ok());
  EXPECT_EQ(clock.Now(), wall_);
  ASSERT_TRUE(fs::is_symlink(file));
  fs::rename(file + ".there", file);
  EXPECT_EQ(Start().Now(), kWall);
}

TEST_F(SteadyClockTest, WithoutARoomForItsFileItRunsAndSaysSo) {
  SteadyClock clock;
  EXPECT_FALSE(clock.Open("/nonexistent/state").ok());
  const auto first = clock.Now();
  EXPECT_LE(first, clock.Now());
  EXPECT_GT(clock.Now(), kWall);
}

}  // namespace
}  // namespace gpuloom
