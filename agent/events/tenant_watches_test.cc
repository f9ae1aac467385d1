// SPDX-License-Identifier: Apache-2.0
#include "agent/events/tenant_watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/testing/full_disk.h"
#include "proto/control/connection.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TenantWatchesTest : public ::testing::Test {
 protected:
  TenantWatchesTest() {
    std::string path = (fs::temp_directory_path() / "gpuloom-watches-test-XXXXXX").string();
    directory_ = mkdtemp(path.data());
    path_ = directory_ / "events.json";
  }
  ~TenantWatchesTest() override { fs::remove_all(directory_); }

  // An agent begins.
  TenantWatches Begin() const {
    TenantWatches watches(path_);
    watches.Load();
    return watches;
  }
  // One report of one tenant with so many faults.
  static std::vector<Event> Look(TenantWatches* watches, uint64_t faults,
                                 const char* gpu = "GPU-1") {
    GpuReport report;
    report.tells_gpu = true;
    control::SetText(report.gpu.uuid, gpu);
    control::AllocationState state{};
    control::SetText(state.name, "one");
    control::SetText(state.pod_namespace, "team-a");
    control::SetText(state.pod, "p");
    state.bound = 1;
    state.faults[1] = faults;
    report.allocations = {state};
    return watches->Look(gpu, report);
  }

  fs::path directory_;
  fs::path path_;
};

TEST_F(TenantWatchesTest, TheFirstAgentOfANodeTellsOnlyWhatHappensThen) {
  TenantWatches first = Begin();
  EXPECT_THAT(Look(&first, 3), IsEmpty());
  EXPECT_THAT(Look(&first, 4), SizeIs(1));
}

// Agents of 0.2.0 and before knew less.
TEST_F(TenantWatchesTest, WhatAnOlderAgentHasKeptIsRead) {
  std::ofstream(path_)
      << R"({"told": {"GPU-1": {"one": {"memory_refusals": 0, "session_refusals": 0,
                              "long_kernels": 0, "faults": [0, 3]}}}})";
  TenantWatches next = Begin();
  EXPECT_THAT(Look(&next, 3), IsEmpty());
  EXPECT_THAT(Look(&next, 4), SizeIs(1));
}

TEST_F(TenantWatchesTest, TheNextAgentTellsWhatHasHappenedMeanwhileAndNothingTwice) {
  TenantWatches first = Begin();
  (void)Look(&first, 0);
  first.Keep();
  EXPECT_THAT(Look(&first, 1), SizeIs(1));
  first.Keep();  // and then it is killed
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 1), IsEmpty());
  EXPECT_THAT(Look(&second, 1), IsEmpty());
  TenantWatches third = Begin();
  const std::vector<Event> events = Look(&third, 3);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].message, HasSubstr("2 processes"));
}

TEST_F(TenantWatchesTest, ATenantThatCameWhileNoAgentRanIsToldOf) {
  TenantWatches first = Begin();
  first.Keep();
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 1), SizeIs(1));
}

TEST_F(TenantWatchesTest, AGpuThatIsSilentKeepsWhatWasTold) {
  TenantWatches first = Begin();
  (void)Look(&first, 0, "GPU-1");
  (void)Look(&first, 0, "GPU-2");
  EXPECT_THAT(Look(&first, 2, "GPU-2"), SizeIs(1));
  first.Keep();
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 1, "GPU-1"), SizeIs(1));
  second.Keep();
  TenantWatches third = Begin();
  EXPECT_THAT(Look(&third, 2, "GPU-2"), IsEmpty());
}

TEST_F(TenantWatchesTest, TheDiskIsWrittenToOnlyWithNews) {
  TenantWatches first = Begin();
  (void)Look(&first, 0);
  first.Keep();
  const auto written = fs::last_write_time(path_);
  fs::last_write_time(path_, written - std::chrono::hours(1));
  (void)Look(&first, 0);
  first.Keep();
  EXPECT_EQ(fs::last_write_time(path_), written - std::chrono::hours(1));
  (void)Look(&first, 1);
  first.Keep();
  EXPECT_GE(fs::last_write_time(path_), written);
}

TEST_F(TenantWatchesTest, WhatIsDamagedIsNoReasonToTellEverythingAgain) {
  for (const char* text : {"half", "", "{}", R"({"told": {"GPU-1": {"one": 3}}})"}) {
    std::ofstream(path_) << text;
    TenantWatches watches = Begin();
    EXPECT_THAT(Look(&watches, 3), IsEmpty()) << text;
    EXPECT_THAT(Look(&watches, 4), SizeIs(1)) << text;
    watches.Keep();
    TenantWatches next = Begin();
    EXPECT_THAT(Look(&next, 5), SizeIs(1)) << text;
  }
}

// As of a disk's error.
TEST_F(TenantWatchesTest, WhatCannotBeReadForAMomentIsReadAgain) {
  TenantWatches first = Begin();
  (void)Look(&first, 0);
  EXPECT_THAT(Look(&first, 1), SizeIs(1));
  first.Keep();
  const fs::path there = directory_ / "there";
  fs::rename(path_, there);
  fs::create_symlink(path_, path_);
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 2), IsEmpty());
  second.Keep();
  EXPECT_TRUE(fs::is_symlink(path_));
  fs::rename(there, path_);
  EXPECT_THAT(Look(&second, 3), ElementsAre(Field(&Event::message, HasSubstr("2 processes"))));
}

// What happens from then on is told, at the price of what has happened before.
TEST_F(TenantWatchesTest, WhatStaysUnreadableIsGivenUp) {
  fs::create_symlink(path_, path_);
  TenantWatches first = Begin();
  for (int i = 0; i < TenantWatches::kMostTries; ++i) EXPECT_THAT(Look(&first, 1), IsEmpty());
  EXPECT_THAT(Look(&first, 1), IsEmpty());
  EXPECT_THAT(Look(&first, 2), SizeIs(1));
  first.Keep();
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 2), IsEmpty());
}

TEST_F(TenantWatchesTest, OnAFullDiskItIsTriedAgain) {
  TenantWatches first = Begin();
  (void)Look(&first, 0);
  first.Keep();
  EXPECT_THAT(Look(&first, 1), SizeIs(1));
  {
    const FullDisk full;
    first.Keep();
  }
  first.Keep();
  TenantWatches second = Begin();
  EXPECT_THAT(Look(&second, 1), IsEmpty());
}

}  // namespace
}  // namespace gpuloom
