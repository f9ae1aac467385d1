// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/resource_name.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(ResourceName, AShapesNameIsThatOfSlotsWithItsNumber) {
  EXPECT_EQ(ResourceNameOf("gpuloom.io/gpu", 1), "gpuloom.io/gpu");
  EXPECT_EQ(ResourceNameOf("gpuloom.io/gpu", 4), "gpuloom.io/gpu-x4");
  for (const int shape : {1, 2, 10, 100}) {
    EXPECT_TRUE(IsOurResource(ResourceNameOf("example.org/slot", shape), "example.org/slot"));
  }
}

TEST(ResourceName, OthersAreNotOurs) {
  for (const char* name :
       {"", "gpuloom.io/gp", "gpuloom.io/gpux4", "gpuloom.io/gpu-", "gpuloom.io/gpu-x",
        "gpuloom.io/gpu-x04", "gpuloom.io/gpu-x4a", "gpuloom.io/gpu-x-4", "gpuloom.io/gpu-large",
        "nvidia.com/gpu", "gpuloom.io/gpu2"}) {
    EXPECT_FALSE(IsOurResource(name, "gpuloom.io/gpu")) << name;
  }
}

}  // namespace
}  // namespace gpuloom
