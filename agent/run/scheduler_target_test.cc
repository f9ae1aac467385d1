// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_target.h"

#include <gtest/gtest.h>

#include "agent/run/state_dir.h"

namespace gpuloom::run {
namespace {

const Installation kInstallation = {"/bin/s", {"/lib/c", "/lib/n", "/lib/t"}, "/lib/soft"};

TEST(SchedulerTarget, ARealGpuHasItsOwnFolderAndTheDriversLibrary) {
  CommandLine line;
  line.gpu = "GPU-1";
  const SchedulerTarget target = TargetOf(line, kInstallation);
  EXPECT_EQ(target.program, "/bin/s");
  EXPECT_EQ(target.gpu, "GPU-1");
  EXPECT_EQ(target.cuda_library, "libcuda.so.1");
  EXPECT_EQ(target.state_dir, DefaultStateDir("gpuGPU-1"));
  EXPECT_FALSE(target.softgpu);
}

TEST(SchedulerTarget, TheSoftwareGpuIsAnotherPlace) {
  CommandLine line;
  line.softgpu = true;
  const SchedulerTarget target = TargetOf(line, kInstallation);
  EXPECT_EQ(target.gpu, "0");
  EXPECT_EQ(target.cuda_library, "/lib/soft");
  EXPECT_EQ(target.state_dir, DefaultStateDir("softgpu"));
  EXPECT_TRUE(target.softgpu);
}

TEST(SchedulerTarget, TheUsersFolderWins) {
  CommandLine line;
  line.state_dir = "mine";
  EXPECT_EQ(TargetOf(line, kInstallation).state_dir, "mine");
}

}  // namespace
}  // namespace gpuloom::run
