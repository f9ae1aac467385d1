// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cat.h"

namespace gpuloom {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const char kUuidA[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
const char kUuidB[] = "GPU-bbbbbbbb-0000-0000-0000-000000000002";
const char kUuidC[] = "GPU-cccccccc-0000-0000-0000-000000000003";

std::vector<std::string> Slots(const char* uuid, std::vector<int> slots) {
  std::vector<std::string> ids;
  for (const int slot : slots) ids.push_back(MakeDeviceId(uuid, slot));
  return ids;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(DeviceId, RoundTripWithinTheApisLength) {
  const std::string id = MakeDeviceId(kUuidA, kMaxSlotsPerGpu - 1);
  EXPECT_EQ(id, "gpu-aaaaaaaa-0000-0000-0000-000000000001::99");
  EXPECT_LE(id.size(), 63u);
  const std::optional<SlotId> slot = ParseDeviceId(id);
  ASSERT_TRUE(slot.has_value());
  EXPECT_EQ(slot->gpu_uuid, kUuidA);
  EXPECT_EQ(slot->slot, 99);
}

TEST(DeviceId, WhatIsNotOursIsNoId) {
  for (const char* text :
       {"", "gpu-", "gpu-::1", "gpu-a", "gpu-a::", "gpu-a::-1", "gpu-a::01", "gpu-a::1x",
        "gpu-a::100", "GPU-a::1", "nvidia0", "gpu-a::99999999999"}) {
    EXPECT_FALSE(ParseDeviceId(text).has_value()) << text;
  }
}

TEST(PreferOneGpu, BestFitIsTheFullestGpuThatStillFits) {
  const auto available =
      Slots(kUuidA, {0, 1, 2, 3, 4}) + Slots(kUuidB, {7, 8}) + Slots(kUuidC, {1, 2, 3});
  EXPECT_THAT(*PreferOneGpu(available, {}, 2),
              ElementsAre(MakeDeviceId(kUuidB, 7), MakeDeviceId(kUuidB, 8)));
  EXPECT_THAT(*PreferOneGpu(available, {}, 3), Contains(MakeDeviceId(kUuidC, 1)));
  EXPECT_THAT(*PreferOneGpu(available, {}, 4), Contains(MakeDeviceId(kUuidA, 0)));
}

TEST(PreferOneGpu, HonoursWhatMustBeIncluded) {
  const auto available = Slots(kUuidA, {0, 1, 2, 3, 4}) + Slots(kUuidB, {7, 8});
  const auto chosen = PreferOneGpu(available, Slots(kUuidA, {4}), 2);
  ASSERT_TRUE(chosen.ok());
  EXPECT_THAT(*chosen, SizeIs(2));
  EXPECT_THAT(*chosen, Contains(MakeDeviceId(kUuidA, 4)));
  EXPECT_EQ(*RequireOneGpu(*chosen), kUuidA);
  // Of two GPUs: impossible on one.
  EXPECT_FALSE(PreferOneGpu(available, Slots(kUuidA, {4}) + Slots(kUuidB, {7}), 2).ok());
  // Not listed as available: available all the same.
  EXPECT_TRUE(PreferOneGpu({}, Slots(kUuidA, {4}), 1).ok());
  EXPECT_FALSE(PreferOneGpu(available, Slots(kUuidA, {0, 1, 2}), 2).ok());
}

TEST(PreferOneGpu, SaysWhatEachGpuHas) {
  const auto available = Slots(kUuidA, {0}) + Slots(kUuidB, {7, 8}) + Slots(kUuidC, {1});
  EXPECT_EQ(PreferOneGpu(available, {}, 3).status().message(), "no GPU has 3 free slots: 2+1+1");
  EXPECT_EQ(PreferOneGpu({}, {}, 3).status().message(), "no GPU has 3 free slots: 0");
  EXPECT_FALSE(PreferOneGpu(available, {}, 0).ok());
}

TEST(RequireOneGpu, Table) {
  EXPECT_EQ(*RequireOneGpu(Slots(kUuidA, {0, 5})), kUuidA);
  EXPECT_EQ(RequireOneGpu(Slots(kUuidA, {0}) + Slots(kUuidB, {0, 1})).status().message(),
            "no GPU has 3 free slots: 2+1");
  EXPECT_THAT(RequireOneGpu({"nvidia0"}).status().message(),
              HasSubstr("'nvidia0' is not one of ours"));
  EXPECT_THAT(RequireOneGpu(Slots(kUuidA, {1, 1})).status().message(), HasSubstr("comes twice"));
  EXPECT_FALSE(RequireOneGpu({}).ok());
}

}  // namespace
}  // namespace gpuloom
