// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_folders.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

class ExecutorFoldersTest : public ::testing::Test {
 protected:
  ExecutorFoldersTest() {
    char name[] = "/tmp/gpuloom-executor-folders-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~ExecutorFoldersTest() override { std::filesystem::remove_all(root_); }

  // A program that stands in for gpuloom-executor --remove PATH [--user N].
  std::string Program(const std::string& script) {
    const std::filesystem::path path = root_ / "program";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  static bool Removes(ExecutorFolders* folders) {
    return WaitFor([&] {
      folders->OnChildExit();
      return !folders->removing();
    });
  }

  std::filesystem::path root_;
  EventLoop loop_;
};

TEST_F(ExecutorFoldersTest, AreRemovedByAProcessOfTheirUser) {
  ExecutorFolders folders(&loop_, root_,
                          Program("echo \"$@\" > " + root_.string() + "/asked; rm -r $2"));
  const std::string path = folders.NewPath();
  EXPECT_EQ(path.find(root_.string() + "/gpuloom-executor-"), 0u);
  EXPECT_NE(path, folders.NewPath());
  folders.Remove(path, ExecutorUser{});
  EXPECT_FALSE(folders.removing()) << "one that was never made needs nobody";
  std::filesystem::create_directory(path);
  folders.Remove(path, ExecutorUser{2'000'000'001, {}});
  EXPECT_TRUE(folders.removing());
  EXPECT_TRUE(Removes(&folders));
  EXPECT_FALSE(std::filesystem::exists(path));
  std::string asked;
  std::ifstream file(root_ / "asked");
  std::getline(file, asked);
  EXPECT_EQ(asked, "--remove " + path + " --user 2000000001");
}

// By an administrator, or because the node has no memory left.
TEST_F(ExecutorFoldersTest, ARemovalThatIsKilledGoesOn) {
  const std::string tries = root_.string() + "/tries";
  ExecutorFolders folders(&loop_, root_,
                          Program("echo >> " + tries + "; [ $(wc -l < " + tries +
                                  ") = 3 ] || kill -KILL $$; rm -r $2"));
  const std::string path = folders.NewPath();
  std::filesystem::create_directory(path);
  folders.Remove(path, ExecutorUser{});
  EXPECT_TRUE(Removes(&folders));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ExecutorFoldersTest, AUserWhoseFolderStaysIsNotGivenAgain) {
  const unsigned first = 3'100'000'000u + static_cast<unsigned>(getpid());
  UserRights rights{0, true, true, true, "0 0 4294967295", "0 0 4294967295"};
  std::string error;
  const auto users =
      ExecutorUsers::Choose(std::to_string(first) + "-" + std::to_string(first), rights, &error);
  ASSERT_TRUE(users) << error;
  for (const bool succeeds : {true, false}) {
    ExecutorFolders folders(&loop_, root_, Program(succeeds ? "rm -r $2" : "exit 1"));
    ExecutorUser user;
    ASSERT_TRUE(users->Take(&user, &error)) << error;
    const std::string path = folders.NewPath();
    std::filesystem::create_directory(path);
    ::testing::internal::CaptureStderr();
    folders.Remove(path, std::move(user));
    EXPECT_TRUE(Removes(&folders));
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("executor: " + path + ", the folder") == log.npos, succeeds) << log;
    EXPECT_EQ(log.find("; user " + std::to_string(first)) == log.npos, succeeds) << log;
    ExecutorUser next;
    EXPECT_EQ(users->Take(&next, &error), succeeds);
  }
}

TEST_F(ExecutorFoldersTest, WhatAKilledSchedulerLeftIsRemovedUnlessSomebodyHasIt) {
  if (getuid() != 0) GTEST_SKIP() << "only root gives folders away";
  const unsigned first = 3'200'000'000u + static_cast<unsigned>(getpid()) * 4;
  UserRights rights{0, true, true, true, "0 0 4294967295", "0 0 4294967295"};
  std::string error;
  const auto users = ExecutorUsers::Choose(std::to_string(first) + "-" + std::to_string(first + 1),
                                           rights, &error);
  ASSERT_TRUE(users) << error;
  ExecutorUser living;
  ASSERT_TRUE(users->TakeThis(first, &living));
  ExecutorUser other;
  EXPECT_FALSE(users->TakeThis(first + 2, &other)) << "not one of these users";
  const auto make = [&](const char* name, unsigned user) {
    std::filesystem::create_directory(root_ / name);
    EXPECT_EQ(chown((root_ / name).c_str(), user, user), 0);
  };
  make("gpuloom-executor-living", first);
  make("gpuloom-executor-left", first + 1);
  make("gpuloom-executor-somebodys", 1000);
  make("another", first + 1);
  ExecutorFolders folders(&loop_, root_, Program("rm -r $2"));
  folders.RemoveLeft(*users);
  EXPECT_TRUE(Removes(&folders));
  EXPECT_FALSE(std::filesystem::exists(root_ / "gpuloom-executor-left"));
  for (const char* name : {"gpuloom-executor-living", "gpuloom-executor-somebodys", "another"}) {
    EXPECT_TRUE(std::filesystem::exists(root_ / name)) << name;
  }
  // As at the next look, when its executor has ended, too.
  living.lock.Reset();
  folders.RemoveLeft(*users);
  EXPECT_TRUE(Removes(&folders));
  EXPECT_FALSE(std::filesystem::exists(root_ / "gpuloom-executor-living"));
}

TEST_F(ExecutorFoldersTest, NobodyRenamesAnothersFolder) {
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  const ExecutorFolders folders(&loop_, root_, "/bin/true");
  struct stat status;
  ASSERT_EQ(stat(root_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777u);
}

}  // namespace
}  // namespace gpuloom::scheduler
