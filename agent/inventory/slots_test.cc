// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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
  const std::optional<DeviceId> slot = ParseDeviceId(id);
  ASSERT_TRUE(slot.has_value());
  EXPECT_EQ(slot->gpu_uuid, kUuidA);
  EXPECT_EQ(slot->number, 99);
}

TEST(DeviceId, AShapesDevicesHaveTheirOwn) {
  const std::string id = MakeDeviceId({kUuidA, kMaxSlotsPerGpu, 0});
  EXPECT_EQ(id, "gpu-aaaaaaaa-0000-0000-0000-000000000001::x100-0");
  EXPECT_LE(id.size(), 63u);
  EXPECT_EQ(MakeDeviceId({kUuidA, 1, 7}), MakeDeviceId(kUuidA, 7));
  const std::optional<DeviceId> device = ParseDeviceId("gpu-a::x4-12");
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(device->gpu_uuid, "GPU-a");
  EXPECT_EQ(device->shape, 4);
  EXPECT_EQ(device->number, 12);
}

TEST(DeviceId, WhatIsNotOursIsNoId) {
  for (const char* text : {"",
                           "gpu-",
                           "gpu-a::x4",
                           "gpu-a::x-1",
                           "gpu-a::x1-0",
                           "gpu-a::x0-0",
                           "gpu-a::x04-0",
                           "gpu-a::x101-0",
                           "gpu-a::x4-",
                           "gpu-a::x4-01",
                           "gpu-a::x4-100",
                           "gpu-a::x4-1-1",
                           "gpu-::x4-1",
                           "gpu-::1",
                           "gpu-a",
                           "gpu-a::",
                           "gpu-a::-1",
                           "gpu-a::01",
                           "gpu-a::1x",
                           "gpu-a::100",
                           "GPU-a::1",
                           "nvidia0",
                           "gpu-a::99999999999"}) {
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

TEST(PreferOneGpu, OfAShapeOneDevice) {
  const auto chosen = PreferOneGpu(
      {MakeDeviceId({kUuidA, 4, 0}), MakeDeviceId({kUuidA, 4, 1}), MakeDeviceId({kUuidB, 4, 1})},
      {}, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(*chosen, ElementsAre(MakeDeviceId({kUuidB, 4, 1})));
  EXPECT_FALSE(RequireOneGpu({MakeDeviceId({kUuidA, 4, 0}), MakeDeviceId(kUuidA, 0)}).ok());
}

TEST(ParseShapes, TakesNumbersThatAGpuHasRoomFor) {
  EXPECT_THAT(*ParseShapes("", 10), SizeIs(0));
  EXPECT_THAT(*ParseShapes("4,2,10", 10), ElementsAre(2, 4, 10));
}

TEST(ParseShapes, SaysWhatIsWrong) {
  for (const auto& [text, why] :
       std::map<std::string, std::string>{{"0", "0 is no shape"},
                                          {"1", "1 is no shape"},
                                          {"2,4,2", "2 comes twice"},
                                          {"2,11", "11 slots are on no GPU: each has 10"},
                                          {"2.5", "'2.5' is no number of slots"},
                                          {"-2", "'-2' is no number"},
                                          {"02", "'02' is no number"},
                                          {"four", "'four' is no number"},
                                          {"2,", "'' is no number"},
                                          {"2 4", "'2 4' is no number"},
                                          {"99999999999", "is no number"},
                                          {"2,3,4,5,6,7,8,9,10", "9 shapes are more than 8"}}) {
    const auto shapes = ParseShapes(text, 10);
    ASSERT_FALSE(shapes.ok()) << text;
    EXPECT_THAT(std::string(shapes.status().message()), HasSubstr(why)) << text;
  }
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
