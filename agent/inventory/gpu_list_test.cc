#include "agent/inventory/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Fixture(const std::string& name) { return GPULOOM_FIXTURES "/libnvml_" + name + ".so"; }

TEST(ListGpus, AsksNvmlUnlessACudaLibraryIsNamed) {
  const auto gpus = ListGpus("", Fixture("two"));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_THAT(*gpus, SizeIs(2));
  EXPECT_THAT(std::string(ListGpus("libabsent-cuda.so", Fixture("two")).status().message()),
              HasSubstr("libabsent-cuda.so"));
}

TEST(ListGpus, ANodeWithoutGpuIsSaidToBeOne) {
  const auto gpus = ListGpus("", Fixture("none"));
  EXPECT_TRUE(absl::IsNotFound(gpus.status()));
  EXPECT_EQ(gpus.status().message(), "nvml: this node has no GPU");
}

TEST(ListGpus, AFailureIsNotAnEmptyNode) {
  EXPECT_THAT(std::string(ListGpus("", Fixture("driver_missing")).status().message()),
              HasSubstr("nvml: init: Driver Not Loaded"));
}

}  // namespace
}  // namespace gpuloom
