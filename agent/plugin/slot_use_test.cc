// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/slot_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/inventory/slots.h"

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char kUuid[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
const char kOtherUuid[] = "GPU-bbbbbbbb-0000-0000-0000-000000000002";
constexpr uint64_t kGiB = uint64_t{1} << 30;

Allocation Held(std::vector<int> slots, uint64_t slot_bytes, bool is_bound = true,
                const char* gpu = kUuid) {
  Allocation allocation;
  allocation.gpu_uuid = gpu;
  for (const int slot : slots) allocation.device_ids.push_back(MakeDeviceId(gpu, slot));
  allocation.auto_slot_bytes = slot_bytes;
  if (is_bound) allocation.binding.emplace().quota_bytes = slot_bytes * slots.size();
  return allocation;
}

// 100 GiB for slots.
Capacity Slots(int slots) { return {kUuid, 104 * kGiB, 4 * kGiB, slots}; }

TEST(SlotUse, WithUnchangedNumbersEverySlotCanBeGiven) {
  const std::vector<Allocation> held = {Held({0, 3}, 10 * kGiB), Held({4}, 10 * kGiB, false)};
  const SlotUse use(Slots(10), held, 10 * kGiB, false);
  EXPECT_EQ(use.held(), 3u);
  EXPECT_EQ(use.beyond(), 0u);
  EXPECT_EQ(use.promised_bytes(), 30 * kGiB);
  EXPECT_EQ(use.room_bytes(), 100 * kGiB);
  EXPECT_THAT(use.withheld(), IsEmpty());
  EXPECT_EQ(use.LeftBeside({9}), 70 * kGiB);
  EXPECT_EQ(use.LeftBeside({3}), 80 * kGiB) << "its own";
}

TEST(SlotUse, OfFewerSlotsOnlyThoseAreGivenForWhichOldOnesLeaveMemory) {
  std::vector<Allocation> held;
  for (int slot = 1; slot < 10; ++slot) held.push_back(Held({slot}, 10 * kGiB));
  const SlotUse nine(Slots(5), held, 20 * kGiB, false);
  EXPECT_EQ(nine.held(), 9u);
  EXPECT_EQ(nine.beyond(), 5u);
  EXPECT_THAT(nine.withheld(), ElementsAre(0)) << "it would be 20 GiB, and 10 are left";
  held.pop_back();
  EXPECT_THAT(SlotUse(Slots(5), held, 20 * kGiB, false).withheld(), IsEmpty());
}

TEST(SlotUse, OfMoreSlotsNoneIsGivenThatOldOnesHaveTheMemoryOf) {
  std::vector<Allocation> held;
  for (int slot = 0; slot < 4; ++slot) held.push_back(Held({slot}, 20 * kGiB));
  EXPECT_THAT(SlotUse(Slots(10), held, 10 * kGiB, false).withheld(), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(SlotUse(Slots(10), held, 10 * kGiB, true).withheld(), IsEmpty()) << "overcommit";
}

TEST(SlotUse, OfOneIdTheLatestAllocationCounts) {
  const SlotUse use(Slots(5), {Held({0, 1}, 10 * kGiB), Held({0}, 20 * kGiB, false)}, 20 * kGiB,
                    false);
  EXPECT_EQ(use.promised_bytes(), 30 * kGiB);
  EXPECT_EQ(SlotUse(Slots(5), {Held({0}, 10 * kGiB, true, kOtherUuid)}, 0, false).held(), 0u);
}

TEST(SlotUse, AReserveThatHasGrownLeavesNothingForFreeSlots) {
  Capacity capacity = Slots(2);
  capacity.reserve_bytes = 200 * kGiB;
  const SlotUse use(capacity, {Held({0}, 50 * kGiB)}, 0, false);
  EXPECT_EQ(use.room_bytes(), 0u);
  EXPECT_EQ(use.LeftBeside({}), 0u);
  EXPECT_THAT(SlotUse(capacity, {Held({0}, 50 * kGiB)}, kGiB, false).withheld(), ElementsAre(1));
}

TEST(AutoSlotBytesOf, OfAnOlderAgentsAllocationIsWhatItWasGranted) {
  Allocation allocation = Held({0, 1}, 10 * kGiB);
  EXPECT_EQ(AutoSlotBytesOf(allocation, Slots(5)), 10 * kGiB);
  allocation.auto_slot_bytes = 0;
  EXPECT_EQ(AutoSlotBytesOf(allocation, Slots(5)), 10 * kGiB);
  allocation.binding.reset();
  EXPECT_EQ(AutoSlotBytesOf(allocation, Slots(5)), 20 * kGiB);
}

// A shape's device with these slots.
Allocation Shaped(int number, std::vector<int> slots, uint64_t slot_bytes = 10 * kGiB) {
  Allocation allocation;
  allocation.gpu_uuid = kUuid;
  allocation.device_ids = {MakeDeviceId({kUuid, static_cast<int>(slots.size()), number})};
  allocation.auto_slot_bytes = slot_bytes;
  allocation.binding.emplace().quota_bytes = slot_bytes * slots.size();
  allocation.slots = std::move(slots);
  return allocation;
}

TEST(SlotUse, AShapeHasAsManyPlacesAsFitIntoWhatIsFree) {
  const SlotUse nobody(Slots(10), {}, 10 * kGiB, false);
  EXPECT_THAT(nobody.Places(4), ElementsAre(0, 1));
  EXPECT_THAT(nobody.Places(2), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(nobody.Places(10), ElementsAre(0));
  // Which slots are taken does not matter, only how many are left.
  const SlotUse scattered(Slots(10), {Held({0, 3, 6, 9}, 10 * kGiB)}, 10 * kGiB, false);
  EXPECT_THAT(scattered.Places(4), ElementsAre(0));
  EXPECT_THAT(scattered.Places(2), ElementsAre(0, 1, 2));
  EXPECT_THAT(scattered.Places(7), IsEmpty());
}

TEST(SlotUse, WhatAShapeHasNobodyElseIsOffered) {
  const SlotUse use(Slots(10), {Shaped(1, {6, 7, 8, 9}), Held({0}, 10 * kGiB)}, 10 * kGiB, false);
  EXPECT_EQ(use.held(), 5u);
  EXPECT_EQ(use.promised_bytes(), 50 * kGiB);
  EXPECT_THAT(use.Closed(), ElementsAre(6, 7, 8, 9));
  EXPECT_EQ(use.ShapeWith(7), MakeDeviceId({kUuid, 4, 1}));
  EXPECT_EQ(use.ShapeWith(0), "");
  EXPECT_THAT(use.Free(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(use.Places(4), ElementsAre(0, 1)) << "the one that is held, and one more";
  EXPECT_THAT(use.Places(2), ElementsAre(0, 1));
  EXPECT_EQ(use.LeftBeside({6, 7, 8, 9}), 90 * kGiB);
}

TEST(SlotUse, ADeviceOfAShapeKeepsItsSlotsAndANewOneGetsTheHighest) {
  const SlotUse use(Slots(10), {Shaped(0, {1, 4, 5, 9})}, 10 * kGiB, false);
  EXPECT_THAT(use.SlotsFor({kUuid, 4, 0}), ElementsAre(1, 4, 5, 9));
  EXPECT_THAT(use.SlotsFor({kUuid, 4, 1}), ElementsAre(3, 6, 7, 8));
  EXPECT_THAT(use.SlotsFor({kUuid, 2, 0}), ElementsAre(7, 8));
  EXPECT_THAT(use.SlotsFor({kUuid, 7, 0}), IsEmpty());
}

TEST(SlotUse, WithFewerSlotsAShapesDeviceKeepsWhatItHasAndGivesOnlyWhatThereIs) {
  const std::vector<Allocation> held = {Shaped(0, {6, 7, 8, 9}), Shaped(1, {2, 3, 4, 5})};
  const SlotUse use(Slots(5), held, 20 * kGiB, false);
  EXPECT_EQ(use.held(), 8u);
  EXPECT_EQ(use.beyond(), 5u);
  EXPECT_THAT(use.withheld(), ElementsAre(1)) << "20 GiB are left, which is one slot";
  EXPECT_THAT(use.Places(4), ElementsAre(0)) << "in use; of number 1 there is no place any more";
  EXPECT_THAT(use.SlotsFor({kUuid, 4, 0}), IsEmpty()) << "its slots are none of the GPU's any more";
  EXPECT_THAT(use.Places(2), IsEmpty());
}

TEST(SlotUse, SlotsWithoutMemoryAreNoRoomForAShape) {
  const std::vector<Allocation> held = {Held({0, 1}, 40 * kGiB)};
  const SlotUse use(Slots(10), held, 10 * kGiB, false);
  EXPECT_THAT(use.withheld(), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(use.Places(2), ElementsAre(0));
  EXPECT_THAT(use.SlotsFor({kUuid, 2, 0}), ElementsAre(2, 3));
  EXPECT_THAT(SlotUse(Slots(10), held, 10 * kGiB, true).Places(4), ElementsAre(0, 1));
}

}  // namespace
}  // namespace gpuloom
