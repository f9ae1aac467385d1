// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/scheduler_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::ElementsAre;

TEST(SchedulerCommand, WhatIsNotSetIsLeftToTheScheduler) {
  const SchedulerCommand command = {"/bin/s", "", "", "", "", "", 0, "", ""};
  EXPECT_THAT(command.For("GPU-1", "/d"),
              ElementsAre("/bin/s", "--gpu", "GPU-1", "--state-dir", "/d"));
}

TEST(SchedulerCommand, PassesOnWhatIsSet) {
  const SchedulerCommand command = {"/bin/s", "60s", "10s",   "/lib/c.so", "7-9",
                                    "8GiB",   2,     "error", "json"};
  EXPECT_THAT(
      command.For("GPU-1", "/d"),
      ElementsAre("/bin/s", "--gpu", "GPU-1", "--state-dir", "/d", "--idle-timeout", "60s",
                  "--drain-timeout", "10s", "--cuda-library", "/lib/c.so", "--executor-users",
                  "7-9", "--executor-memory", "8GiB", "--spare-executors", "2", "--log-level",
                  "error", "--log-format", "json"));
}

}  // namespace
}  // namespace gpuloom
