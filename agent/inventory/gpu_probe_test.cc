// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "agent/inventory/cuda_library.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

TEST(ProbeGpu, ASoftwareGpuDoesWhatItIsAskedFor) {
  const auto gpus = ListGpusFromCudaLibrary(GPULOOM_SOFTGPU_PATH);
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ(ProbeGpu(GPULOOM_SOFTGPU_PATH, gpus->usable.front().uuid), "");
  EXPECT_THAT(ProbeGpu(GPULOOM_SOFTGPU_PATH, "GPU-00000000-0000-0000-0000-000000000001"),
              HasSubstr("cuda: the driver does not find the GPU"));
  EXPECT_THAT(ProbeGpu("libabsent.so.1", gpus->usable.front().uuid), HasSubstr("libabsent.so.1"));
}

// In a process of its own, whose driver has less memory than a probe takes.
TEST(ProbeGpu, AGpuWithoutRoomIsFullAndNotSick) {
  const char* const kMarker = "GPULOOM_TEST_PROBES_AND_ENDS";
  if (getenv(kMarker) != nullptr) {
    const auto gpus = ListGpusFromCudaLibrary(GPULOOM_SOFTGPU_PATH);
    std::printf("%s\n", ProbeGpu(GPULOOM_SOFTGPU_PATH, gpus->usable.front().uuid).c_str());
    std::fflush(stdout);
    _exit(1);
  }
  const std::atomic<bool> is_cancelled = false;
  const ProbeResult result =
      RunGpuProbe({"/usr/bin/env", std::string(kMarker) + "=1", "GPULOOM_SOFTGPU_MEMORY=512KiB",
                   std::filesystem::read_symlink("/proc/self/exe"),
                   "--gtest_filter=ProbeGpu.AGpuWithoutRoomIsFullAndNotSick"},
                  is_cancelled);
  EXPECT_TRUE(result.is_known);
  EXPECT_TRUE(result.is_full) << result.trouble;
  EXPECT_EQ(result.trouble, "");
}

ProbeResult RunScript(const std::string& script) {
  const std::atomic<bool> is_cancelled = false;
  return RunGpuProbe({"/bin/sh", "-c", script}, is_cancelled);
}

TEST(RunGpuProbe, WhatItsProgramSaysLastCounts) {
  ProbeResult result = RunScript("echo noise of a driver; echo the GPU is well");
  EXPECT_TRUE(result.is_known);
  EXPECT_EQ(result.trouble, "");
  result = RunScript("echo noise; echo cuda: no; exit 1");
  EXPECT_EQ(result.trouble, "cuda: no");
  result = RunScript("exec kill -9 $$");
  EXPECT_TRUE(result.is_known);
  EXPECT_THAT(result.trouble, HasSubstr("killed by signal 9"));
  result = RunScript("yes | head -c 100000; echo the GPU is well");
  EXPECT_EQ(result.trouble, "");
  EXPECT_FALSE(result.is_full);
  result = RunScript(std::string("echo noise; echo ") + kGpuIsFull + "; exit 1");
  EXPECT_TRUE(result.is_known);
  EXPECT_TRUE(result.is_full);
  EXPECT_EQ(result.trouble, "");
}

TEST(RunGpuProbe, OneThatIsCancelledSaysNothing) {
  std::atomic<bool> is_cancelled = false;
  ProbeResult result{true, "?"};
  std::thread runner([&] { result = RunGpuProbe({"/bin/sleep", "1000"}, is_cancelled); });
  is_cancelled = true;
  runner.join();
  EXPECT_FALSE(result.is_known);
  EXPECT_FALSE(RunGpuProbe({"/nowhere/probe"}, is_cancelled).is_known);
}

}  // namespace
}  // namespace gpuloom
