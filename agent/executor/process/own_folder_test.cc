// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/own_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::executor {
namespace {

class OwnFolder : public ::testing::Test {
 protected:
  OwnFolder() {
    char name[] = "/tmp/gpuloom-own-folder-XXXXXX";
    root_ = mkdtemp(name);
    folder_ = root_ / "folder";
    std::filesystem::create_directory(folder_);
  }
  ~OwnFolder() override { std::filesystem::remove_all(root_); }

  void ExpectRemoved() {
    std::string error;
    EXPECT_TRUE(RemoveFolder(folder_, &error)) << error;
    EXPECT_FALSE(std::filesystem::exists(folder_));
  }

  std::filesystem::path root_;
  std::filesystem::path folder_;
};

TEST_F(OwnFolder, IsRemovedWithWhatIsInIt) {
  std::filesystem::create_directories(folder_ / "cache/0/1");
  std::ofstream(folder_ / "cache/0/1/index") << "x";
  std::ofstream(folder_ / "cache/file") << "x";
  ExpectRemoved();
}

TEST_F(OwnFolder, Malicious_LinksAreNotFollowed) {
  std::filesystem::create_directory(root_ / "outside");
  std::ofstream(root_ / "outside/file") << "x";
  std::filesystem::create_directory_symlink(root_ / "outside", folder_ / "link");
  std::filesystem::create_directory(folder_ / "inner");
  std::filesystem::create_directory_symlink(root_ / "outside", folder_ / "inner/link");
  ExpectRemoved();
  EXPECT_TRUE(std::filesystem::exists(root_ / "outside/file"));
}

TEST_F(OwnFolder, Malicious_NoDepthIsTooDeepAndNoPermissionTooFew) {
  // Deeper than a path may be long and than there are descriptors.
  int at = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int depth = 0; depth < 3000; ++depth) {
    ASSERT_EQ(mkdirat(at, "deeper", 0700), 0);
    const int next = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fchmod(at, depth % 2 == 0 ? 0 : 0700);
    close(at);
    ASSERT_GE(next, 0);
    at = next;
  }
  close(at);
  ExpectRemoved();
}

TEST_F(OwnFolder, OneThatIsNotThereIsNoError) {
  std::string error;
  EXPECT_TRUE(RemoveFolder(root_ / "missing", &error)) << error;
}

TEST_F(OwnFolder, OneThatCannotBeRemovedIsSaid) {
  std::string error;
  EXPECT_FALSE(RemoveFolder("/proc/self/task", &error));
  EXPECT_NE(error.find("cannot remove /proc/self/task: "), std::string::npos) << error;
}

}  // namespace
}  // namespace gpuloom::executor
