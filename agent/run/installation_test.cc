// SPDX-License-Identifier: Apache-2.0
#include "agent/run/installation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;

class InstallationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "installationXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directory(root_ + "/bin");
    fs::create_directory(root_ + "/lib");
    for (const char* file : {"/bin/gpuloom-scheduler", "/lib/libgpuloom.so",
                             "/lib/libgpuloom-nvml.so", "/lib/gpuloom-trace"}) {
      std::ofstream(root_ + file) << "x";
    }
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(InstallationTest, EverythingLiesBesideTheProgram) {
  Installation found;
  std::string error;
  ASSERT_TRUE(FindInstallation(root_ + "/bin/gpuloom", &found, &error)) << error;
  EXPECT_EQ(found.scheduler, root_ + "/bin/gpuloom-scheduler");
  EXPECT_EQ(found.libraries.cuda, root_ + "/lib/libgpuloom.so");
  EXPECT_EQ(found.libraries.nvml, root_ + "/lib/libgpuloom-nvml.so");
  EXPECT_EQ(found.libraries.trace, root_ + "/lib/gpuloom-trace");
  EXPECT_EQ(found.softgpu, root_ + "/lib/softgpu/libcuda.so.1");
}

TEST_F(InstallationTest, WhatIsMissingIsNamed) {
  for (const char* file : {"/lib/gpuloom-trace", "/lib/libgpuloom-nvml.so", "/lib/libgpuloom.so",
                           "/bin/gpuloom-scheduler"}) {
    fs::remove(root_ + file);
    Installation found;
    std::string error;
    EXPECT_FALSE(FindInstallation(root_ + "/bin/gpuloom", &found, &error));
    EXPECT_EQ(error, root_ + file +
                         " is missing: No such file or directory; is the installation complete?");
  }
}

}  // namespace
}  // namespace gpuloom::run
