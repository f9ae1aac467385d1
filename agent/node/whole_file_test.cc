// SPDX-License-Identifier: Apache-2.0
#include "agent/node/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    std::string name = ::testing::TempDir() + "wholeXXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/file";
  }
  ~WholeFileTest() override { fs::remove_all(folder_); }

  [[nodiscard]] bool Write(const std::string& path, const std::string& content,
                           unsigned mode = 0600) {
    return WriteWholeFile(path, content, mode, &failure_);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_, path_;
  FileFailure failure_;
};

TEST_F(WholeFileTest, ANewOneTakesThePlaceOfTheOldOne) {
  ASSERT_TRUE(Write(path_, "old"));
  ASSERT_TRUE(Write(path_, std::string("new\0", 4), 0644));
  EXPECT_EQ(Read(path_), std::string("new\0", 4));
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(WholeFileTest, AFailureNamesFileAndReasonAndLeavesNothing) {
  EXPECT_FALSE(Write(folder_ + "/none/file", "x"));
  EXPECT_EQ(failure_.path, folder_ + "/none/file");
  EXPECT_STREQ(failure_.call, "open");
  EXPECT_EQ(failure_.error, ENOENT);
  fs::create_directories(path_ + "/in the way");
  EXPECT_FALSE(Write(path_, "x"));
  EXPECT_STREQ(failure_.call, "rename");
  EXPECT_EQ(failure_.error, EISDIR);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(WholeFileTest, WhereDescriptorsRunOutTheOldContentStays) {
  ASSERT_TRUE(Write(path_, "old"));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // The lowest free one, and no other: for the new file, not for the folder.
  const int lowest = dup(STDOUT_FILENO);
  ASSERT_EQ(close(lowest), 0);
  const rlimit one = {static_cast<rlim_t>(lowest) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  const bool written = Write(path_, "new");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(written);
  EXPECT_EQ(failure_.error, EMFILE);
  EXPECT_EQ(failure_.path, folder_ + "/");
  EXPECT_STREQ(failure_.call, "open");
  EXPECT_EQ(Read(path_), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(WholeFileTest, WhatAWriterLeftThatWasKilledIsRemoved) {
  const std::string left = path_ + ".aaaaaa.new", writing = path_ + ".bbbbbb.new";
  for (const std::string& path : {left, writing, path_}) ASSERT_TRUE(Write(path, "content"));
  const channel::UniqueFd held(open(writing.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  RemoveUnfinishedFiles(folder_);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(writing)) << "somebody writes it";
  EXPECT_TRUE(fs::exists(path_));
  RemoveUnfinishedFiles(folder_ + "/missing");
}

TEST_F(WholeFileTest, WritingAndRemovingAtOnceLosesNothing) {
  std::atomic<bool> ends = false;
  std::thread remover([&] {
    while (!ends) RemoveUnfinishedFiles(folder_);
  });
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    EXPECT_TRUE(Write(path_, std::to_string(i))) << failure_.call;
    EXPECT_EQ(Read(path_), std::to_string(i));
  }
  ends = true;
  remover.join();
}

}  // namespace
}  // namespace gpuloom
