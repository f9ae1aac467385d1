// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/shim_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ShimStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "shimXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }
  std::string Library(const std::string& content) {
    const std::string path = state_ + "/built.so";
    std::ofstream(path) << content;
    return path;
  }
  std::string state_;
};

TEST_F(ShimStoreTest, VersionsStandSideBySideUntilPruned) {
  ShimStore store(state_);
  const auto old_file = store.Install(Library("\177ELF one"), "1.0");
  ASSERT_TRUE(old_file.ok()) << old_file.status();
  struct stat before = {}, after = {};
  ASSERT_EQ(stat(store.PathOf(*old_file).c_str(), &before), 0);
  EXPECT_EQ(before.st_mode & 07777, 0755u);
  // The same content again: the same inode, which running containers have mounted.
  EXPECT_EQ(*store.Install(Library("\177ELF one"), "1.0"), *old_file);
  ASSERT_EQ(stat(store.PathOf(*old_file).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);

  const auto new_file = store.Install(Library("\177ELF two"), "1.0");
  ASSERT_TRUE(new_file.ok());
  EXPECT_NE(*new_file, *old_file);
  ASSERT_TRUE(store.Prune({*old_file, *new_file}).ok());
  EXPECT_TRUE(fs::exists(store.PathOf(*old_file)));
  ASSERT_TRUE(store.Prune({*new_file}).ok());
  EXPECT_FALSE(fs::exists(store.PathOf(*old_file)));
  EXPECT_TRUE(fs::exists(store.PathOf(*new_file)));
  EXPECT_TRUE(fs::exists(store.PathOf(ShimStore::kEmptyLibrary32))) << "it is every container's";
}

// An agent of 0.2.0 deletes what it does not know beside the libraries; a container that has the program mounted must
// start again under it.
TEST_F(ShimStoreTest, AProgramLiesWhereAnOlderAgentDoesNotLook) {
  ShimStore store(state_);
  const std::string built = state_ + "/gpuloom-trace";
  std::ofstream(built) << "\177ELF program";
  const auto library = store.Install(Library("\177ELF one"), "1.0.7");
  const auto program = store.Install(built, "1.0.7");
  ASSERT_TRUE(library.ok() && program.ok()) << library.status() << program.status();
  EXPECT_EQ(fs::path(store.PathOf(*library)).parent_path(), state_ + "/shim");
  EXPECT_EQ(fs::path(store.PathOf(*program)).parent_path(), state_ + "/programs");
  struct stat made = {};
  ASSERT_EQ(stat(store.PathOf(*program).c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0755u);
  ASSERT_TRUE(store.Prune({*library, *program}).ok());
  EXPECT_TRUE(fs::exists(store.PathOf(*program)));
  ASSERT_TRUE(store.Prune({*library}).ok());
  EXPECT_FALSE(fs::exists(store.PathOf(*program)));
  EXPECT_TRUE(fs::exists(store.PathOf(*library)));
}

TEST_F(ShimStoreTest, ADamagedCopyIsReplaced) {
  ShimStore store(state_);
  const auto file = store.Install(Library("\177ELF one"), "1.0");
  ASSERT_TRUE(file.ok());
  std::ofstream(store.PathOf(*file)) << "half";
  ASSERT_TRUE(store.Install(Library("\177ELF one"), "1.0").ok());
  EXPECT_EQ(fs::file_size(store.PathOf(*file)), 8u);
}

TEST_F(ShimStoreTest, WhatIsNoLibraryIsRefusedByName) {
  ShimStore store(state_);
  EXPECT_THAT(std::string(store.Install(state_ + "/absent.so", "1").status().message()),
              HasSubstr("absent.so"));
  EXPECT_THAT(std::string(store.Install(Library("text"), "1").status().message()),
              HasSubstr("neither a library nor a program"));
}

TEST_F(ShimStoreTest, AFileSystemThatForbidsExecIsRefused) {
  ShimStore store(state_, [](const std::string&) { return true; });
  EXPECT_THAT(std::string(store.Install(Library("\177ELF"), "1").status().message()),
              HasSubstr("noexec"));
  EXPECT_FALSE(ShimStore::IsMountedNoexec("/usr"));
}

}  // namespace
}  // namespace gpuloom
