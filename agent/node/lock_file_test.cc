// SPDX-License-Identifier: Apache-2.0
#include "agent/node/lock_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LockFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "lock_fileXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/lock";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
  std::string path_;
};

TEST_F(LockFileTest, SaysWhoHoldsIt) {
  LockFile first = TakeLock(path_);
  ASSERT_TRUE(first.fd.valid()) << first.error;
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  const LockFile second = TakeLock(path_);
  EXPECT_FALSE(second.fd.valid());
  EXPECT_TRUE(second.is_held_by_another);
  EXPECT_EQ(second.holder, getpid());
  EXPECT_THAT(second.error, HasSubstr("cannot lock " + path_ + ": "));
  first.fd.Reset();
  EXPECT_TRUE(TakeLock(path_).fd.valid()) << "the first has ended";
}

TEST_F(LockFileTest, IsSeenByWhoeverMayOnlyReadIt) {
  const LockFile lock = TakeLock(path_);
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  fs::permissions(path_, static_cast<fs::perms>(0444));
  fs::permissions(folder_, static_cast<fs::perms>(0755));
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  EXPECT_TRUE(IsLocked(path_));
  ASSERT_EQ(seteuid(user), 0);
}

TEST_F(LockFileTest, IsCertainlyUnlockedOnlyWhereThatIsKnown) {
  EXPECT_TRUE(IsCertainlyUnlocked(path_)) << "nobody has made it";
  LockFile lock = TakeLock(path_);
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  EXPECT_FALSE(IsCertainlyUnlocked(path_));
  lock.fd.Reset();
  EXPECT_TRUE(IsCertainlyUnlocked(path_));
  const std::string unknown = folder_ + "/leads to itself";
  fs::create_symlink(unknown, unknown);
  EXPECT_FALSE(IsCertainlyUnlocked(unknown));
  EXPECT_FALSE(IsLocked(unknown));
}

TEST_F(LockFileTest, WhoOnlyLooksKeepsNobodyFromTakingIt) {
  { const LockFile made = TakeLock(path_); }
  std::atomic<bool> ends = false;
  std::thread looks([&] {
    while (!ends) {
      (void)IsLocked(path_);
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(TakeLock(path_).fd.valid());
  ends = true;
  looks.join();
}

TEST_F(LockFileTest, WhatALongerIdLeftBehindIsGone) {
  std::ofstream(path_) << "123456789012345\n";
  const LockFile lock = TakeLock(path_);
  std::ifstream file(path_);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, std::to_string(getpid()) + "\n");
}

TEST_F(LockFileTest, AHolderMaySayMoreAndIsKnownAllTheSame) {
  EXPECT_EQ(LineOfHolder(path_), "") << "there is no such file";
  {
    const LockFile lock = TakeLock(path_, "1.2.3 (abc)");
    EXPECT_EQ(LineOfHolder(path_), "1.2.3 (abc)");
    EXPECT_EQ(TakeLock(path_).holder, getpid());
  }
  EXPECT_EQ(LineOfHolder(path_), "1.2.3 (abc)") << "the last one's";
  const LockFile silent = TakeLock(path_);
  EXPECT_EQ(LineOfHolder(path_), "");
}

TEST_F(LockFileTest, AHolderWhoCouldNotWriteIsUnknown) {
  const LockFile first = TakeLock(path_);
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  const LockFile second = TakeLock(path_);
  EXPECT_TRUE(second.is_held_by_another);
  EXPECT_EQ(second.holder, 0);
}

TEST_F(LockFileTest, IsSeenWithoutBeingTaken) {
  EXPECT_FALSE(IsLocked(path_)) << "there is none";
  EXPECT_FALSE(fs::exists(path_));
  LockFile lock = TakeLock(path_);
  EXPECT_TRUE(IsLocked(path_));
  EXPECT_TRUE(IsLocked(path_)) << "looking took nothing";
  lock.fd.Reset();
  EXPECT_FALSE(IsLocked(path_));
}

TEST_F(LockFileTest, AFileThatCannotBeOpenedIsNamed) {
  fs::create_directory(path_);
  const LockFile lock = TakeLock(path_);
  EXPECT_FALSE(lock.fd.valid());
  EXPECT_FALSE(lock.is_held_by_another);
  EXPECT_THAT(lock.error, HasSubstr("cannot open the lock file " + path_ + ": "));
}

}  // namespace
}  // namespace gpuloom
