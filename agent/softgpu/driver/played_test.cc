// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/played.h"

#include <gtest/gtest.h>

namespace gpuloom::softgpu {
namespace {

TEST(Played, DriversByTheirBranch) {
  std::string error;
  ASSERT_NE(FindPlayedDriver("", &error), nullptr);
  EXPECT_EQ(FindPlayedDriver("", &error)->version, CUDA_VERSION);
  const PlayedDriver* oldest = FindPlayedDriver("535", &error);
  ASSERT_NE(oldest, nullptr);
  EXPECT_EQ(oldest->version, 12020);
  EXPECT_EQ(oldest->newest_ptx, 82u);
  EXPECT_EQ(FindPlayedDriver("560", &error), nullptr);
  EXPECT_EQ(error, "GPULOOM_SOFTGPU_DRIVER is \"560\"; write 535, 550, 570 or 580");
}

TEST(Played, CapabilitiesByTheirNumber) {
  std::string error;
  ASSERT_NE(FindPlayedCapability("", &error), nullptr);
  EXPECT_EQ(FindPlayedCapability("", &error)->number, 90u);
  for (const char* text :
       {"7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"}) {
    const PlayedCapability* found = FindPlayedCapability(text, &error);
    ASSERT_NE(found, nullptr) << text << ": " << error;
    EXPECT_EQ(ptx::Dotted(found->number), text);
    EXPECT_LE(found->block_shared_bytes() + found->reserved_shared_bytes, found->shared_bytes());
    EXPECT_EQ(found->max_threads % 32, 0);
    EXPECT_EQ(found->has_clusters(), found->number >= 90);
  }
  for (const char* text : {"7.0", "9", "90", "sm_90", "13.0"}) {
    EXPECT_EQ(FindPlayedCapability(text, &error), nullptr) << text;
    EXPECT_NE(error.find("write 7.5, 8.0"), std::string::npos) << error;
  }
}

TEST(Played, OldDriversKnowNoNewDevices) {
  std::string error;
  const auto knows = [&](const char* driver, const char* capability) {
    return KnowsCapability(*FindPlayedDriver(driver, &error),
                           *FindPlayedCapability(capability, &error), &error);
  };
  EXPECT_TRUE(knows("535", "9.0"));
  EXPECT_TRUE(knows("570", "12.0"));
  EXPECT_TRUE(knows("580", "11.0"));
  EXPECT_FALSE(knows("550", "12.0"));
  EXPECT_EQ(error,
            "GPULOOM_SOFTGPU_DRIVER=550 does not know compute capability 12.0; the first that does "
            "is 570");
  EXPECT_FALSE(knows("570", "10.3"));
}

}  // namespace
}  // namespace gpuloom::softgpu
