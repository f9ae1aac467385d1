// SPDX-License-Identifier: Apache-2.0
#include "agent/node/layout.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

class LayoutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "layoutXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directory(root_ + "/bin");
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(LayoutTest, ABuildTreeHasAllProgramsBesideEachOther) {
  const Layout layout = LayoutOf(root_ + "/bin/gpuloom");
  EXPECT_EQ(layout.scheduler(), root_ + "/bin/gpuloom-scheduler");
  EXPECT_EQ(layout.shim(), root_ + "/lib/libgpuloom.so");
  EXPECT_EQ(layout.nvml(), root_ + "/lib/libgpuloom-nvml.so");
  EXPECT_EQ(layout.trace(), root_ + "/lib/gpuloom-trace");
  EXPECT_EQ(layout.softgpu(), root_ + "/lib/softgpu/libcuda.so.1");
}

TEST_F(LayoutTest, AnInstallationHasFoldersOfItsOwn) {
  const std::string helpers = fs::path(root_ + "/bin/" GPULOOM_HELPERS_FROM_BIN).lexically_normal();
  const std::string libraries =
      fs::path(root_ + "/bin/" GPULOOM_LIBRARIES_FROM_BIN).lexically_normal();
  EXPECT_TRUE(helpers.starts_with(root_ + "/") && libraries.starts_with(root_ + "/"));
  fs::create_directories(helpers);
  std::ofstream(helpers + "/gpuloom-scheduler") << "x";
  const Layout layout = LayoutOf(root_ + "/bin/gpuloom-agent");
  EXPECT_EQ(layout.helpers, helpers);
  EXPECT_EQ(layout.libraries, libraries);
}

}  // namespace
}  // namespace gpuloom
