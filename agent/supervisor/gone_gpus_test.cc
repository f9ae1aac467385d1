// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/gone_gpus.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>

#include "agent/node/gpu_standing.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GoneGpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "gone_gpusXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
    for (const char* gpu : {"GPU-1", "GPU-2"}) fs::create_directories(FolderOfGpu(state_, gpu));
  }
  void TearDown() override { fs::remove_all(state_); }
  bool IsThere(const char* gpu) { return fs::exists(FolderOfGpu(state_, gpu)); }

  std::string state_;
};

TEST_F(GoneGpusTest, AFolderIsAsideWhileItsGpuIsGoneWithTheOrderToDrainIt) {
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(FolderOfGpu(state_, "GPU-2"), {1, "fans"}, &error)) << error;
  EXPECT_THAT(SetAsideGoneGpus(state_, {"GPU-1"}), ElementsAre("GPU-2"));
  EXPECT_TRUE(IsThere("GPU-1"));
  EXPECT_FALSE(IsThere("GPU-2"));
  EXPECT_THAT(SetAsideGoneGpus(state_, {"GPU-1"}), IsEmpty());
  TakeBackGpu(state_, "GPU-2");
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, "GPU-2")), "drained by operator: fans");
  // And again, over what was aside before.
  EXPECT_THAT(SetAsideGoneGpus(state_, {"GPU-1"}), ElementsAre("GPU-2"));
  fs::create_directories(FolderOfGpu(state_, "GPU-2"));
  TakeBackGpu(state_, "GPU-2");
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, "GPU-2")), "") << "another one is there";
  EXPECT_THAT(SetAsideGoneGpus(state_, {"GPU-1"}), ElementsAre("GPU-2"));
}

TEST_F(GoneGpusTest, OneInWhichASchedulerRunsStays) {
  const std::string lock = FolderOfGpu(state_, "GPU-2") + "/lock";
  const channel::UniqueFd held(open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(SetAsideGoneGpus(state_, {"GPU-1"}), IsEmpty());
  EXPECT_TRUE(IsThere("GPU-2"));
}

TEST_F(GoneGpusTest, ANodeWithoutStateHasNothingToSetAside) {
  EXPECT_THAT(SetAsideGoneGpus(state_ + "/none", {}), IsEmpty());
  TakeBackGpu(state_ + "/none", "GPU-1");
}

}  // namespace
}  // namespace gpuloom
