// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace gpuloom::scheduler {
namespace {

TEST(DescriptorLimit, IsRaisedAsFarAsItGoes) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  RaiseDescriptorLimit();
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace gpuloom::scheduler
