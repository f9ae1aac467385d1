// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/address_share.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int kMaxAllocations = 1024;
constexpr int kMaxSessions = 64;

DividedWindow WholeWindow() {
  return DividedWindow(kDeviceWindow, kNeededDeviceBytes, kAssuredDeviceBytes);
}

// One allocation and its sessions' ranges.
struct Tenant {
  AddressLimits limits;
  AddressShare share;
  std::vector<channel::Range> ranges;

  explicit Tenant(uint64_t quota_bytes) : limits(DeviceAddressLimits(quota_bytes)) {}

  bool Open(DividedWindow* window) {
    channel::Range range;
    if (!share.Take(limits, window, &range)) return false;
    ranges.push_back(range);
    return true;
  }
  // Of any; its range is held on.
  void EndServing() { share.EndServing(); }
  void Close(size_t i, DividedWindow* window) {
    share.EndServing();
    share.Free(ranges[i], window);
    ranges.erase(ranges.begin() + static_cast<ptrdiff_t>(i));
  }
  // All that it can.
  void OpenAll(DividedWindow* window) {
    while (ranges.size() < kMaxSessions && Open(window)) {
    }
  }
};

uint64_t Reservable(uint64_t quota_bytes, const channel::Range& range) {
  return range.size_bytes - DeviceOwnBytes(quota_bytes, range.size_bytes);
}

TEST(AddressShare, AFirstSessionReserves256GiBWhateverItsQuota) {
  for (const uint64_t quota :
       {uint64_t{0}, 2 * kMiB, 64 * kMiB, 2 * kGiB, 20 * kGiB, 141 * kGiB, UINT64_MAX}) {
    SCOPED_TRACE(quota);
    DividedWindow window = WholeWindow();
    Tenant tenant(quota);
    ASSERT_TRUE(tenant.Open(&window));
    EXPECT_GE(Reservable(quota, tenant.ranges[0]), 256 * kGiB);
  }
}

TEST(AddressShare, OfTheWholeDeviceThreeAndAHalfTiBAreTheTenants) {
  DividedWindow window = WholeWindow();
  Tenant tenant(141 * kGiB);
  ASSERT_TRUE(tenant.Open(&window));
  EXPECT_EQ(DeviceOwnBytes(141 * kGiB, tenant.ranges[0].size_bytes), 512 * kGiB);
  EXPECT_EQ(Reservable(141 * kGiB, tenant.ranges[0]), 3584 * kGiB);
}

TEST(AddressShare, FurtherSessionsShrinkFirstAndTogetherAreBounded) {
  for (const uint64_t quota : {64 * kMiB, 2 * kGiB, 141 * kGiB}) {
    SCOPED_TRACE(quota);
    DividedWindow window = WholeWindow();
    Tenant tenant(quota);
    tenant.OpenAll(&window);
    ASSERT_EQ(tenant.ranges.size(), size_t{kMaxSessions});
    for (size_t i = 1; i < tenant.ranges.size(); ++i) {
      EXPECT_LE(tenant.ranges[i].size_bytes, tenant.ranges[i - 1].size_bytes) << i;
    }
    EXPECT_LE(tenant.ranges[1].size_bytes, tenant.ranges[0].size_bytes / 2);
    for (size_t i = 1; i < 5; ++i) EXPECT_GE(Reservable(quota, tenant.ranges[i]), 32 * kGiB) << i;
    EXPECT_LE(tenant.share.held_bytes(), tenant.limits.most_bytes);
    EXPECT_EQ(window.open.free_bytes(), window.open.size_bytes() - tenant.share.held_bytes());
    EXPECT_EQ(window.needed.taken_count() + window.assured.taken_count(), 0u);
  }
}

TEST(AddressShare, WhatComesBackLateStaysOnTheAccount) {
  DividedWindow window = WholeWindow();
  Tenant tenant(2 * kGiB);
  ASSERT_TRUE(tenant.Open(&window));
  const uint64_t first_bytes = tenant.ranges[0].size_bytes;
  // Sessions that end, and whose ranges nobody has given back yet.
  int opened = 1;
  while (tenant.Open(&window)) ++opened;
  EXPECT_LE(tenant.share.held_bytes(), tenant.limits.most_bytes);
  EXPECT_NE(tenant.share.Refusal(tenant.limits).find("the limit is 1036 GiB"), std::string::npos)
      << tenant.share.Refusal(tenant.limits);
  Tenant other(2 * kGiB);
  ASSERT_TRUE(other.Open(&window));
  EXPECT_EQ(other.ranges[0].size_bytes, first_bytes);
  while (!tenant.ranges.empty()) tenant.Close(0, &window);
  EXPECT_EQ(tenant.share.held_bytes(), 0u);
  ASSERT_TRUE(tenant.Open(&window));
  EXPECT_EQ(tenant.ranges[0].size_bytes, first_bytes);
}

// A program that starts again while its predecessor drains.
TEST(AddressShare, WithNoSessionServedTheNextIsAFirstOne) {
  DividedWindow window = WholeWindow();
  Tenant tenant(2 * kGiB);
  ASSERT_TRUE(tenant.Open(&window));
  tenant.EndServing();
  ASSERT_TRUE(tenant.Open(&window));
  EXPECT_EQ(tenant.ranges[1].size_bytes, tenant.limits.first_bytes);
  ASSERT_TRUE(tenant.Open(&window));
  EXPECT_LE(tenant.ranges[2].size_bytes, tenant.limits.first_bytes / 2)
      << "one is served beside it";
}

TEST(AddressShare, Malicious_FirstSessionsWithoutEndTakeABoundedPart) {
  DividedWindow window = WholeWindow();
  std::vector<Tenant> hostile(4, Tenant(2 * kGiB));
  for (Tenant& tenant : hostile) {
    while (tenant.Open(&window)) tenant.EndServing();
    EXPECT_LE(tenant.share.held_bytes(), tenant.limits.most_bytes);
    EXPECT_EQ(tenant.ranges[2].size_bytes, tenant.limits.first_bytes);
    EXPECT_EQ(tenant.ranges.back().size_bytes, kLeastDeviceRangeBytes);
  }
  // Nothing is left but what is kept: of that no more than one range each.
  std::vector<Tenant> others(kMaxAllocations - 4, Tenant(kGiB));
  for (Tenant& tenant : others) tenant.OpenAll(&window);
  const size_t taken = window.needed.taken_count();
  for (Tenant& tenant : hostile) {
    while (!tenant.ranges.empty()) {
      tenant.share.Free(tenant.ranges.back(), &window);
      tenant.ranges.pop_back();
    }
    EXPECT_EQ(tenant.share.held_bytes(), 0u);
  }
  Tenant whole(141 * kGiB);
  ASSERT_TRUE(whole.Open(&window));
  whole.EndServing();
  while (whole.Open(&window)) whole.EndServing();
  EXPECT_LE(window.needed.taken_count(), taken + 1);
}

TEST(AddressShare, AThousandAllocationsWithFourSessionsEachAreServed) {
  DividedWindow window = WholeWindow();
  std::vector<Tenant> tenants(kMaxAllocations, Tenant(128 * kMiB));
  int generous = 0;
  for (Tenant& tenant : tenants) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(tenant.Open(&window));
    generous += Reservable(128 * kMiB, tenant.ranges[0]) >= 256 * kGiB;
    for (const channel::Range& range : tenant.ranges) {
      EXPECT_GE(DeviceOwnBytes(128 * kMiB, range.size_bytes), 2 * kGiB);
    }
  }
  EXPECT_GE(generous, 64) << "as many allocations reserve what they like";
}

TEST(AddressShare, NobodyEmptiesTheWindowForOthers) {
  DividedWindow window = WholeWindow();
  std::vector<Tenant> hostile(kMaxAllocations - 2, Tenant(kGiB));
  hostile[0] = Tenant(141 * kGiB);  // it asks first and gets the most
  for (Tenant& tenant : hostile) tenant.OpenAll(&window);
  // No room is left but what is kept.
  EXPECT_FALSE(hostile[7].Open(&window));
  Tenant small(64 * kMiB);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(small.Open(&window)) << i;
  EXPECT_FALSE(small.Open(&window));
  EXPECT_NE(small.share.Refusal(small.limits)
                .find("16 GiB of this GPU's device addresses in 4 processes; the limit is 4 "),
            std::string::npos)
      << small.share.Refusal(small.limits);
  Tenant large(80 * kGiB);
  ASSERT_TRUE(large.Open(&window));
  EXPECT_GE(DeviceOwnBytes(80 * kGiB, large.ranges[0].size_bytes), 80 * kGiB)
      << "its quota has room, also where nothing else has";
  // One that ends its sessions makes room again.
  while (!hostile[0].ranges.empty()) hostile[0].Close(0, &window);
  Tenant next(kGiB);
  ASSERT_TRUE(next.Open(&window));
  EXPECT_GE(Reservable(kGiB, next.ranges[0]), 256 * kGiB);
}

TEST(AddressShare, OneTenantLeavesTheOthersAllTheyWant) {
  DividedWindow window = WholeWindow();
  Tenant hostile(2 * kGiB);
  std::mt19937 random(3);
  // Opens and closes so that what it holds lies wherever it can make it lie.
  for (int round = 0; round < 2000; ++round) {
    if (hostile.ranges.size() < kMaxSessions && random() % 3 != 0) {
      ASSERT_TRUE(hostile.Open(&window));
    } else if (!hostile.ranges.empty()) {
      hostile.Close(random() % hostile.ranges.size(), &window);
    }
  }
  std::vector<Tenant> others(100, Tenant(kGiB));
  for (Tenant& tenant : others) {
    ASSERT_TRUE(tenant.Open(&window));
    EXPECT_GE(Reservable(kGiB, tenant.ranges[0]), 256 * kGiB);
  }
  Tenant whole(141 * kGiB);
  ASSERT_TRUE(whole.Open(&window));
  EXPECT_GE(DeviceOwnBytes(141 * kGiB, whole.ranges[0].size_bytes), 512 * kGiB);
}

TEST(AddressShare, QuotasThatPromiseMoreThanThereIsLeaveSmallOnesTheirs) {
  DividedWindow window = WholeWindow();
  std::vector<Tenant> all(kMaxAllocations, Tenant(141 * kGiB));
  for (Tenant& tenant : all) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(tenant.Open(&window));
  }
}

// Whatever 1,024 allocations do: each gets four sessions.
TEST(AddressShare, WhatIsAssuredIsThereAtEveryMoment) {
  DividedWindow window = WholeWindow();
  std::mt19937 random(11);
  std::vector<Tenant> tenants;
  for (int i = 0; i < kMaxAllocations; ++i) tenants.emplace_back((64 * kMiB) << (i % 3));
  for (int step = 0; step < 15'000; ++step) {
    Tenant& tenant = tenants[random() % tenants.size()];
    if (random() % 10 != 0) {
      const size_t before = tenant.ranges.size();
      const bool opened = before < kMaxSessions && tenant.Open(&window);
      ASSERT_TRUE(opened || before >= tenant.limits.assured) << "step " << step;
    } else if (!tenant.ranges.empty()) {
      tenant.Close(random() % tenant.ranges.size(), &window);
    }
  }
}

TEST(AddressShare, HostRangesFollowTheLimitOfPinnedMemory) {
  EXPECT_EQ(HostAddressLimits(0).first_bytes, kGiB);
  EXPECT_EQ(HostAddressLimits(kGiB).first_bytes, 4 * kGiB);
  EXPECT_EQ(HostAddressLimits(8 * kGiB).first_bytes, 32 * kGiB);
  EXPECT_EQ(HostAddressLimits(UINT64_MAX).first_bytes, 64 * kGiB);
  EXPECT_EQ(PinnedLimitBytes(8 * kGiB, 32 * kGiB), 8 * kGiB);
  EXPECT_EQ(PinnedLimitBytes(8 * kGiB, kGiB), kGiB / 2) << "as much as has room";
}

// Whatever they pin, and whenever it comes back.
TEST(AddressShare, AThousandAllocationsHaveFourHostRangesEach) {
  DividedWindow window(kHostWindow, kNeededHostBytes, kAssuredHostBytes);
  std::vector<Tenant> tenants(kMaxAllocations, Tenant(kGiB));
  for (Tenant& tenant : tenants) tenant.limits = HostAddressLimits(UINT64_MAX);
  for (Tenant& tenant : tenants) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(tenant.Open(&window));
  }
}

TEST(AddressShare, Malicious_NobodyEmptiesTheHostWindowForOthers) {
  DividedWindow window(kHostWindow, kNeededHostBytes, kAssuredHostBytes);
  Tenant hostile(kGiB);
  hostile.limits = HostAddressLimits(8 * kGiB);
  while (hostile.Open(&window)) hostile.EndServing();
  EXPECT_EQ(hostile.share.held_bytes(), hostile.limits.most_bytes);
  std::vector<Tenant> others(90, Tenant(kGiB));
  for (Tenant& tenant : others) {
    tenant.limits = HostAddressLimits(8 * kGiB);
    ASSERT_TRUE(tenant.Open(&window));
    EXPECT_EQ(tenant.ranges[0].size_bytes, tenant.limits.first_bytes);
  }
}

}  // namespace
}  // namespace gpuloom::scheduler
