// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_description.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpuloom::scheduler {
namespace {

bool IsEmpty(const wire::DeviceDescription& said) {
  const wire::DeviceDescription nothing{};
  return std::memcmp(&said, &nothing, sizeof(said)) == 0;
}

TEST(DeviceDescription, SaysWhatNvmlSays) {
  const wire::DeviceDescription said =
      DescribeDevice(GPULOOM_NVML_FIXTURE, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
  EXPECT_EQ(said.pcie_generation, 5u);
  EXPECT_EQ(said.pcie_device_generation, 6u);
  EXPECT_EQ(said.pcie_width, 8u);
  EXPECT_EQ(said.pcie_max_width, 16u);
  EXPECT_EQ(said.max_clock_mhz[2], 1002u);
  EXPECT_EQ(said.max_clock_mhz[3], 0u);  // it does not know
  EXPECT_EQ(said.power_default_mw, 0u);
  EXPECT_EQ(said.power_min_mw, 200'000u);
  EXPECT_EQ(said.power_max_mw, 700'000u);
  EXPECT_EQ(said.pci_device_and_vendor, 0x233510deu);
  EXPECT_EQ(said.pci_subsystem, 0x18be10deu);
}

TEST(DeviceDescription, NothingIsSaidOfAnotherDeviceOrWithoutNvml) {
  EXPECT_TRUE(IsEmpty(DescribeDevice(GPULOOM_NVML_FIXTURE, "GPU-of-another-machine")));
  EXPECT_TRUE(IsEmpty(DescribeDevice("libabsent-ml.so.1", "GPU-")));
  EXPECT_TRUE(IsEmpty(DescribeDevice("libm.so.6", "GPU-")));  // a library, but not NVML
}

}  // namespace
}  // namespace gpuloom::scheduler
