// SPDX-License-Identifier: Apache-2.0
#include "agent/capacities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/policy/capacity.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Gpu MakeGpu(const std::string& uuid, uint64_t total_bytes) {
  Gpu gpu;
  gpu.uuid = uuid;
  gpu.total_bytes = total_bytes;
  return gpu;
}

TEST(Capacities, EachGpuHasItsOwn) {
  const auto capacities =
      CapacitiesOf({MakeGpu("GPU-1", 80 * kGiB), MakeGpu("GPU-2", 140 * kGiB)}, 4, "2GiB");
  ASSERT_TRUE(capacities.ok()) << capacities.status();
  ASSERT_THAT(*capacities, SizeIs(2));
  EXPECT_EQ(capacities->at("GPU-1").total_bytes, 80 * kGiB);
  EXPECT_EQ(capacities->at("GPU-2").total_bytes, 140 * kGiB);
  EXPECT_EQ(capacities->at("GPU-2").reserve_bytes, 2 * kGiB);
  EXPECT_EQ(capacities->at("GPU-2").slots, 4);
}

TEST(Capacities, OneGpuThatIsTooSmallCostsNoOther) {
  const auto capacities =
      CapacitiesOf({MakeGpu("GPU-1", 80 * kGiB), MakeGpu("GPU-2", kGiB)}, 4, "2GiB");
  ASSERT_TRUE(capacities.ok()) << capacities.status();
  EXPECT_EQ(NothingLeft(capacities->at("GPU-1")), "");
  EXPECT_THAT(NothingLeft(capacities->at("GPU-2")), HasSubstr("GPU GPU-2 has 1GiB"));
}

TEST(Capacities, AReserveThatIsNoSizeIsRefused) {
  const auto capacities = CapacitiesOf({MakeGpu("GPU-1", 80 * kGiB)}, 4, "much");
  EXPECT_THAT(std::string(capacities.status().message()), HasSubstr("--reserve: "));
}

}  // namespace
}  // namespace gpuloom
