// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

namespace gpuloom::executor {
namespace {

TEST(Environment, TheVariableForTheLogCountsMoreThanTheScheduler) {
  unsetenv("GPULOOM_EXECUTOR_LOG");
  EXPECT_EQ(LogLevelOf(LogLevel::kError), LogLevel::kError);
  setenv("GPULOOM_EXECUTOR_LOG", "debug", 1);
  EXPECT_EQ(LogLevelOf(LogLevel::kError), LogLevel::kDebug);
  setenv("GPULOOM_EXECUTOR_LOG", "loud", 1);
  EXPECT_EQ(LogLevelOf(LogLevel::kInfo), LogLevel::kInfo);
  unsetenv("GPULOOM_EXECUTOR_LOG");
}

TEST(Environment, BatchingIsOnUnlessItIsOff) {
  unsetenv("GPULOOM_EXECUTOR_BATCHING");
  EXPECT_TRUE(IsBatchingOn());
  setenv("GPULOOM_EXECUTOR_BATCHING", "on", 1);
  EXPECT_TRUE(IsBatchingOn());
  setenv("GPULOOM_EXECUTOR_BATCHING", "off", 1);
  EXPECT_FALSE(IsBatchingOn());
  unsetenv("GPULOOM_EXECUTOR_BATCHING");
}

TEST(Environment, TimeIsSharedUnlessThatIsOff) {
  unsetenv("GPULOOM_EXECUTOR_SHARING");
  EXPECT_TRUE(IsSharingOn());
  setenv("GPULOOM_EXECUTOR_SHARING", "off", 1);
  EXPECT_FALSE(IsSharingOn());
  unsetenv("GPULOOM_EXECUTOR_SHARING");
}

TEST(Environment, TheDriverFindsItsVariablesAndDescriptors) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  PrepareForDriver();
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "16");
  EXPECT_EQ(HardwareQueueCount(), 16u);
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "LAZY");
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  // Who wants another number of queues gets it.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  PrepareForDriver();
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
  EXPECT_EQ(HardwareQueueCount(), 8u);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  unsetenv("CUDA_MODULE_LOADING");
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace gpuloom::executor
