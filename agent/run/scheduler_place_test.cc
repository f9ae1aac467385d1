// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_place.h"

#include <gtest/gtest.h>

#include "agent/run/state_dir.h"

namespace gpuloom::run {
namespace {

const Installation kInstallation = {"/bin/s", {"/lib/c", "/lib/n", "/lib/t"}, "/lib/soft"};

TEST(SchedulerPlace, ARealGpuHasItsOwnFolderAndTheDriversLibrary) {
  CommandLine line;
  line.gpu = "GPU-1";
  const SchedulerPlace place = PlaceOf(line, kInstallation);
  EXPECT_EQ(place.program, "/bin/s");
  EXPECT_EQ(place.gpu, "GPU-1");
  EXPECT_EQ(place.cuda_library, "libcuda.so.1");
  EXPECT_EQ(place.state_dir, DefaultStateDir("gpuGPU-1"));
  EXPECT_FALSE(place.softgpu);
}

TEST(SchedulerPlace, TheSoftwareGpuIsAnotherPlace) {
  CommandLine line;
  line.softgpu = true;
  const SchedulerPlace place = PlaceOf(line, kInstallation);
  EXPECT_EQ(place.gpu, "0");
  EXPECT_EQ(place.cuda_library, "/lib/soft");
  EXPECT_EQ(place.state_dir, DefaultStateDir("softgpu"));
  EXPECT_TRUE(place.softgpu);
}

TEST(SchedulerPlace, TheUsersFolderWins) {
  CommandLine line;
  line.state_dir = "mine";
  EXPECT_EQ(PlaceOf(line, kInstallation).state_dir, "mine");
}

}  // namespace
}  // namespace gpuloom::run
