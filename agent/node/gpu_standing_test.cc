// SPDX-License-Identifier: Apache-2.0
#include "agent/node/gpu_standing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
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

// Opening fails then, whether there is a file or not.
TEST_F(GpuStandingTest, WithoutAFreeFileDescriptorNothingIsTakenForGoneOrThere) {
  const std::string full = folder_ + "/full";
  fs::create_directory(full);
  std::ofstream(StandingPath(full)) << FormatStanding({});
  std::ofstream(full + "/drained.json") << "{}";
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string unread;
  std::string none_unread;
  const bool is_read = ReadStanding(full, &unread).has_value();
  const bool is_drained = ReadDrainOrder(full).has_value();
  const bool none_is_read = ReadStanding(folder_, &none_unread).has_value();
  const bool none_is_drained = ReadDrainOrder(folder_).has_value();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_read);
  EXPECT_EQ(unread, StandingPath(full) + ": cannot be read now: Too many open files");
  EXPECT_TRUE(is_drained);
  EXPECT_FALSE(none_is_read);
  EXPECT_EQ(none_unread, "");
  EXPECT_FALSE(none_is_drained);
  EXPECT_TRUE(ReadStanding(full, &unread).has_value());
  EXPECT_EQ(unread, "");
  std::ofstream(StandingPath(full)) << "{";
  EXPECT_FALSE(ReadStanding(full, &unread).has_value());
  EXPECT_EQ(unread, "") << "it will never be one";
}

}  // namespace
}  // namespace gpuloom
