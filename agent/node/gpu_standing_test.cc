// SPDX-License-Identifier: Apache-2.0
#include "agent/node/gpu_standing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/node/whole_file.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class GpuStandingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "standingXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
  std::string error_;
};

TEST_F(GpuStandingTest, AnOrderIsKeptUntilItIsTakenBack) {
  EXPECT_FALSE(ReadDrainOrder(folder_).has_value());
  EXPECT_EQ(DrainReason(folder_), "");
  ASSERT_TRUE(WriteDrainOrder(folder_, {1000, "fans \"A\"\nand B"}, &error_)) << error_;
  ASSERT_TRUE(ReadDrainOrder(folder_).has_value());
  EXPECT_EQ(ReadDrainOrder(folder_)->since_unix_s, 1000);
  EXPECT_EQ(DrainReason(folder_), "drained by operator: fans \"A\"\\nand B");
  ASSERT_TRUE(WriteDrainOrder(folder_, {2000, ""}, &error_));
  EXPECT_EQ(ReadDrainOrder(folder_)->since_unix_s, 1000) << "it has been drained since then";
  EXPECT_EQ(DrainReason(folder_), "drained by operator");
  ASSERT_TRUE(RemoveDrainOrder(folder_, &error_));
  ASSERT_TRUE(RemoveDrainOrder(folder_, &error_));
  EXPECT_FALSE(ReadDrainOrder(folder_).has_value());
  EXPECT_TRUE(fs::is_empty(folder_)) << "nothing else is left";
}

TEST_F(GpuStandingTest, AnAgentThatBeginsMeanwhileLosesNoOrder) {
  std::atomic<bool> ends = false;
  const auto remove = [&] {
    while (!ends) RemoveUnfinishedFiles(folder_);
  };
  std::thread agents[] = {std::thread(remove), std::thread(remove), std::thread(remove)};
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const std::string reason = std::to_string(i);
    EXPECT_TRUE(WriteDrainOrder(folder_, {1000, reason}, &error_)) << error_;
    EXPECT_EQ(DrainReason(folder_), "drained by operator: " + reason);
  }
  ends = true;
  for (std::thread& agent : agents) agent.join();
}

TEST_F(GpuStandingTest, WhatCannotBeReadDrains) {
  for (const char* text : {"", "{", "[1]", "{\"since\": \"noon\", \"reason\": 7}"}) {
    std::ofstream(folder_ + "/drained.json") << text;
    EXPECT_EQ(DrainReason(folder_), "drained by operator") << text;
  }
  fs::remove(folder_ + "/drained.json");
  fs::create_directory(folder_ + "/drained.json");
  EXPECT_EQ(DrainReason(folder_), "drained by operator");
}

TEST_F(GpuStandingTest, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_FALSE(WriteDrainOrder(folder_ + "/none", {1, ""}, &error_));
  EXPECT_THAT(error_, HasSubstr(folder_ + "/none/drained.json: cannot be written: No such file"));
}

TEST_F(GpuStandingTest, AStandingComesBackAsItWas) {
  EXPECT_FALSE(ReadStanding(folder_).has_value());
  const GpuStanding standing = {GpuState::kDrained,
                                "drained by operator",
                                1000,
                                5,
                                10,
                                5,
                                1,
                                4096,
                                8192,
                                3,
                                2,
                                {"p.yaml:1:2: too much"},
                                "NVIDIA H100",
                                16384,
                                1,
                                "Xid 79",
                                "event"};
  std::ofstream(StandingPath(folder_)) << FormatStanding(standing);
  ASSERT_TRUE(ReadStanding(folder_).has_value());
  EXPECT_EQ(*ReadStanding(folder_), standing);
  for (const char* text : {"", "{", "7", "{\"state\": \"dreaming\"}", "{\"state\": 1}"}) {
    std::ofstream(StandingPath(folder_)) << text;
    EXPECT_FALSE(ReadStanding(folder_).has_value()) << text;
  }
  std::ofstream(StandingPath(folder_)) << "{\"state\": \"healthy\", \"slots\": \"many\"}";
  ASSERT_TRUE(ReadStanding(folder_).has_value());
  EXPECT_EQ(ReadStanding(folder_)->slots, 0u);
  EXPECT_EQ(ReadStanding(folder_)->index, -1) << "an older agent's";
  std::ofstream(StandingPath(folder_)) << "{\"state\": \"sick\", \"reason\": \"Xid 79\"}";
  EXPECT_EQ(ReadStanding(folder_)->sickness, "Xid 79") << "an older agent's";
  EXPECT_EQ(ReadStanding(folder_)->sickness_source, "");
}

}  // namespace
}  // namespace gpuloom
