// SPDX-License-Identifier: Apache-2.0
#include "agent/run/shown_time.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::run {
namespace {

constexpr int64_t kWallMs = 1'700'000'000'000;

TEST(ShownTime, IsWallTimeAfterTheMachinesClockWasSet) {
  std::string state = ::testing::TempDir() + "shownXXXXXX";
  ASSERT_NE(mkdtemp(state.data()), nullptr);
  const auto shown = [&](const char* boot, int64_t since_boot_ms, int64_t wall_ms) {
    return ShownTime(state, boot, since_boot_ms, wall_ms).Of(1'700'000'010);
  };
  EXPECT_EQ(shown("b", 100'000, kWallMs), 1'700'000'010) << "no agent has begun here";
  std::ofstream(state + "/clock.yaml")
      << "boot: \"b\"\nsinceBootMs: 40000\ntimeMs: " << kWallMs << "\n";
  // A minute after it began, 50 s after the time that is shown.
  EXPECT_EQ(shown("b", 100'000, kWallMs + 60'000), 1'700'000'010);
  EXPECT_EQ(shown("b", 100'000, kWallMs + 60'400), 1'700'000'010) << "only adjusted";
  EXPECT_EQ(shown("b", 100'000, kWallMs + 60'000 - 3'600'000), 1'700'000'010 - 3600);
  EXPECT_EQ(shown("b", 100'000, kWallMs + 60'000 + 3'600'000), 1'700'000'010 + 3600);
  EXPECT_EQ(shown("another", 100'000, kWallMs), 1'700'000'010) << "no record of this boot";
  EXPECT_EQ(ShownTime(state, "b", 100'000, 0).Of(0), 0) << "unknown";
  std::ofstream(state + "/clock.yaml") << "boot: [";
  EXPECT_EQ(shown("b", 100'000, 0), 1'700'000'010);
  std::filesystem::remove_all(state);
}

}  // namespace
}  // namespace gpuloom::run
