// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/cupti.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom::executor {
namespace {

using ::testing::HasSubstr;

TEST(LoadCupti, ByItsPath) {
  Cupti cupti;
  std::string why;
  ASSERT_TRUE(LoadCupti(GPULOOM_CUPTI_FIXTURE, nullptr, &cupti, &why)) << why;
  EXPECT_EQ(cupti.path, GPULOOM_CUPTI_FIXTURE);
  uint32_t version = 0;
  EXPECT_EQ(cupti.cuptiGetVersion(&version), kCuptiSuccess);
  const std::string path = GPULOOM_CUPTI_FIXTURE;
  EXPECT_EQ(cupti.description,
            path.substr(path.rfind('/') + 1) + ", API " + std::to_string(version) + ", " + path);
}

TEST(LoadCupti, WhatCannotBeUsedIsNamed) {
  Cupti cupti;
  std::string why;
  EXPECT_FALSE(LoadCupti("/nowhere/libcupti.so", nullptr, &cupti, &why));
  EXPECT_THAT(why, HasSubstr("cannot load /nowhere/libcupti.so"));
  EXPECT_FALSE(LoadCupti("libm.so.6", nullptr, &cupti, &why));
  EXPECT_THAT(why, HasSubstr("libm.so.6 is too old"));
  EXPECT_FALSE(LoadCupti("off", nullptr, &cupti, &why));
  EXPECT_THAT(why, HasSubstr("switched off"));
}

}  // namespace
}  // namespace gpuloom::executor
