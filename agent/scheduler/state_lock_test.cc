// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/state_lock.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace gpuloom::scheduler {
namespace {

namespace fs = std::filesystem;

class StateLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "state_lockXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(StateLockTest, MakesTheFolderAndSaysWhoHoldsIt) {
  const std::string state = folder_ + "/gpu0";
  const LockFile lock = LockState(state);
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  EXPECT_EQ(fs::status(state).permissions(), fs::perms::owner_all);
  std::stringstream text;
  text << std::ifstream(state + "/lock").rdbuf();
  EXPECT_EQ(text.str(), std::to_string(getpid()) + "\n");
}

TEST_F(StateLockTest, TheSecondIsToldWhereTheFirstIsReached) {
  {
    const LockFile first = LockState(folder_);
    ASSERT_TRUE(first.fd.valid()) << first.error;
    const LockFile second = LockState(folder_);
    EXPECT_FALSE(second.fd.valid());
    EXPECT_TRUE(second.is_held_by_another);
    EXPECT_EQ(second.error, "another scheduler holds " + folder_ +
                                "/lock: one runs per GPU; it is reached through " + folder_ +
                                "/control.sock");
  }
  EXPECT_TRUE(LockState(folder_).fd.valid()) << "the first has ended";
}

TEST_F(StateLockTest, AFolderThatCannotBeMadeIsNoOthersLock) {
  const LockFile lock = LockState(folder_ + "/missing/gpu0");
  EXPECT_FALSE(lock.fd.valid());
  EXPECT_FALSE(lock.is_held_by_another);
  EXPECT_EQ(lock.error,
            "cannot make the state folder " + folder_ + "/missing/gpu0: No such file or directory");
}

}  // namespace
}  // namespace gpuloom::scheduler
