// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Fixture(const std::string& name) { return GPULOOM_FIXTURES "/libnvml_" + name + ".so"; }

TEST(Nvml, ListsGpusInNvmlsOrder) {
  const auto gpus = ListGpusFromNvml(Fixture("two"));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_THAT(*gpus, SizeIs(2));
  EXPECT_EQ((*gpus)[0].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ((*gpus)[1].uuid, "GPU-00000000-0000-0000-0000-000000000002");
  EXPECT_EQ((*gpus)[1].index, 1);
  EXPECT_EQ((*gpus)[0].name, "NVIDIA Fixture");
  EXPECT_EQ((*gpus)[0].total_bytes, uint64_t{1} << 37);
  EXPECT_EQ((*gpus)[0].numa_node, -1);
}

TEST(Nvml, FailuresNameTheGpuAndTheNextStep) {
  const std::string mig(ListGpusFromNvml(Fixture("mig")).status().message());
  EXPECT_THAT(mig, HasSubstr("GPU-00000000-0000-0000-0000-000000000001 is in MIG mode"));
  EXPECT_THAT(mig, HasSubstr("nvidia-smi -i 0 -mig 0"));
  EXPECT_THAT(std::string(ListGpusFromNvml(Fixture("gpu_lost")).status().message()),
              HasSubstr("nvml: GPU 0: memory: GPU is lost"));
  EXPECT_THAT(std::string(ListGpusFromNvml(Fixture("driver_missing")).status().message()),
              HasSubstr("nvml: init: Driver Not Loaded"));
}

TEST(Nvml, AMissingLibraryIsNamed) {
  EXPECT_THAT(std::string(ListGpusFromNvml("libabsent-ml.so.1").status().message()),
              HasSubstr("nvml: libabsent-ml.so.1"));
  // Something that is a library, but not NVML.
  EXPECT_THAT(std::string(ListGpusFromNvml("libm.so.6").status().message()),
              HasSubstr("nvmlInit_v2"));
}

}  // namespace
}  // namespace gpuloom
