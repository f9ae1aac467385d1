// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Fixture(const std::string& name) { return GPULOOM_FIXTURES "/libnvml_" + name + ".so"; }

TEST(Nvml, ListsGpusInNvmlsOrder) {
  const auto list = ListGpusFromNvml(Fixture("two"));
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_THAT(list->usable, SizeIs(2));
  EXPECT_THAT(list->unusable, IsEmpty());
  EXPECT_EQ(list->usable[0].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(list->usable[1].uuid, "GPU-00000000-0000-0000-0000-000000000002");
  EXPECT_EQ(list->usable[1].index, 1);
  EXPECT_EQ(list->usable[0].name, "NVIDIA Fixture");
  EXPECT_EQ(list->usable[0].total_bytes, uint64_t{1} << 37);
  EXPECT_EQ(list->usable[0].numa_node, -1);
}

TEST(Nvml, AGpuThatCannotBeUsedIsNamedWithTheNextStep) {
  const auto mig = ListGpusFromNvml(Fixture("mig"));
  ASSERT_TRUE(mig.ok()) << mig.status();
  EXPECT_THAT(mig->usable, IsEmpty());
  ASSERT_THAT(mig->unusable, SizeIs(2));
  EXPECT_EQ(mig->unusable[0].gpu.uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_THAT(mig->unusable[0].reason,
              AllOf(HasSubstr("GPU-00000000-0000-0000-0000-000000000001 is in MIG mode"),
                    HasSubstr("nvidia-smi -i 0 -mig 0")));
  const auto lost = ListGpusFromNvml(Fixture("gpu_lost"));
  ASSERT_TRUE(lost.ok()) << lost.status();
  ASSERT_THAT(lost->unusable, SizeIs(2));
  EXPECT_EQ(lost->unusable[1].gpu.uuid, "GPU-00000000-0000-0000-0000-000000000002");
  EXPECT_THAT(lost->unusable[1].reason, HasSubstr("nvml: GPU 1: memory: GPU is lost"));
}

TEST(Nvml, AGpuThatCannotEvenBeNamedTakesNothingFromTheOthers) {
  const auto list = ListGpusFromNvml(Fixture("gpu_nameless"));
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_THAT(list->usable, SizeIs(1));
  EXPECT_EQ(list->usable[0].index, 0);
  ASSERT_THAT(list->unusable, SizeIs(1));
  EXPECT_EQ(list->unusable[0].gpu.uuid, "");
  EXPECT_EQ(list->unusable[0].gpu.index, 1);
  EXPECT_THAT(list->unusable[0].reason, HasSubstr("nvml: GPU 1: handle: GPU is lost"));
}

TEST(Nvml, ADriverThatDoesNotAnswerIsAFailure) {
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
