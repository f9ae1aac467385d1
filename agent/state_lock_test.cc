// SPDX-License-Identifier: Apache-2.0
#include "agent/state_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/node/lock_file.h"
#include "proto/control/version.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StateLock : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "state_lockXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(StateLock, MakesTheDirectoryForItsOwnerAndNamesTheHolder) {
  const std::string state = folder_ + "/var/lib";
  const auto lock = LockState(state, "agent.lock");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(fs::status(state).permissions(), fs::perms::owner_all);
  std::string pid;
  std::ifstream(state + "/agent.lock") >> pid;
  EXPECT_EQ(pid, std::to_string(getpid()));
  EXPECT_EQ(LineOfHolder(state + "/agent.lock"), kVersion);
}

TEST_F(StateLock, TheSecondIsToldWhoTheFirstIs) {
  EXPECT_FALSE(IsStateLocked(folder_, "agent.lock"));
  auto first = LockState(folder_, "agent.lock");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(IsStateLocked(folder_, "agent.lock"));
  const absl::Status second = LockState(folder_, "agent.lock").status();
  EXPECT_TRUE(absl::IsAlreadyExists(second));
  const std::string message(second.message());
  EXPECT_THAT(message, HasSubstr("another gpuloom-agent (pid " + std::to_string(getpid()) + ")"));
  EXPECT_THAT(message, HasSubstr(folder_ + "/agent.lock"));
  EXPECT_THAT(message, HasSubstr("--state-dir"));
  // Another room of the same directory.
  EXPECT_TRUE(LockState(folder_, "schedulers.lock").ok());
  first->Reset();
  EXPECT_FALSE(IsStateLocked(folder_, "agent.lock"));
  EXPECT_TRUE(LockState(folder_, "agent.lock").ok());
}

TEST_F(StateLock, ADirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(std::string(LockState(folder_ + "/file/state", "agent.lock").status().message()),
              HasSubstr(folder_ + "/file/state"));
}

}  // namespace
}  // namespace gpuloom
