// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/device_space.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "agent/executor/session/range_table.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kBegin = 0x5000'0000'0000;

TEST(DeviceSpace, SlicesAreAlignedAndDoNotOverlap) {
  DeviceSpace space(kBegin, 64 * kGranuleBytes);
  EXPECT_EQ(space.TakeSlice(1), 0u) << "no slab yet";
  space.AddSlab(space.ReserveSpan(kGranuleBytes));
  const uint64_t a = space.TakeSlice(1);
  const uint64_t b = space.TakeSlice(513);
  const uint64_t c = space.TakeSlice(512);
  EXPECT_EQ(a % kSliceAlignment, 0u);
  EXPECT_EQ(b, a + 512);
  EXPECT_EQ(c, b + 1024);
}

TEST(DeviceSpace, FullSlabHasNoRoom) {
  DeviceSpace space(kBegin, 64 * kGranuleBytes);
  space.AddSlab(space.ReserveSpan(kGranuleBytes));
  for (uint64_t i = 0; i < kGranuleBytes / (kGranuleBytes / 4); ++i) {
    EXPECT_NE(space.TakeSlice(kGranuleBytes / 4), 0u);
  }
  EXPECT_EQ(space.TakeSlice(1), 0u);
}

TEST(DeviceSpace, EmptySlabIsGivenBackAndNotCutAgain) {
  DeviceSpace space(kBegin, 64 * kGranuleBytes);
  const uint64_t slab = space.ReserveSpan(kGranuleBytes);
  space.AddSlab(slab);
  const uint64_t a = space.TakeSlice(100);
  const uint64_t b = space.TakeSlice(100);
  ASSERT_TRUE(space.Retire(a));
  EXPECT_EQ(space.Free(a).size_bytes, 0u);
  ASSERT_TRUE(space.Retire(b));
  const DeviceSpace::Span span = space.Free(b);
  EXPECT_EQ(span.address, slab);
  EXPECT_EQ(span.size_bytes, kGranuleBytes);
  EXPECT_EQ(space.TakeSlice(100), 0u);
}

TEST(DeviceSpace, RetiredMemoryIsNobodysButItsAddressesAreNotUsedAgain) {
  DeviceSpace space(kBegin, 2 * kGranuleBytes);
  const uint64_t a = space.ReserveSpan(kGranuleBytes);
  space.AddLarge(a, kGranuleBytes, kGranuleBytes);
  EXPECT_TRUE(space.Contains(a, kGranuleBytes));
  EXPECT_TRUE(space.Retire(a));
  EXPECT_FALSE(space.Contains(a, 1));
  EXPECT_FALSE(space.Retire(a)) << "a second free";
  const uint64_t b = space.ReserveSpan(kGranuleBytes);
  EXPECT_NE(b, a);
  EXPECT_EQ(space.ReserveSpan(kGranuleBytes), 0u);
  EXPECT_EQ(space.Free(a).size_bytes, kGranuleBytes);
  EXPECT_EQ(space.ReserveSpan(kGranuleBytes), 0u) << "still mapped";
  space.ReleaseSpan(a, kGranuleBytes);
  EXPECT_EQ(space.ReserveSpan(kGranuleBytes), a);
}

TEST(DeviceSpace, ContainsIsExactAtTheEnds) {
  DeviceSpace space(kBegin, 8 * kGranuleBytes);
  const uint64_t a = space.ReserveSpan(kGranuleBytes);
  space.AddLarge(a, kGranuleBytes, kLargeBytes + 1);
  EXPECT_TRUE(space.Contains(a, kLargeBytes + 1));
  EXPECT_FALSE(space.Contains(a, kLargeBytes + 2));
  EXPECT_TRUE(space.Contains(a + kLargeBytes + 1, 0));
  EXPECT_FALSE(space.Contains(a + kLargeBytes + 2, 0));
  EXPECT_FALSE(space.Contains(a - 1, 2));
  EXPECT_FALSE(space.Contains(a, UINT64_MAX));
  EXPECT_FALSE(space.Contains(UINT64_MAX, UINT64_MAX));
}

TEST(DeviceSpace, PiecesInTheMiddleAreNoAllocations) {
  DeviceSpace space(kBegin, 8 * kGranuleBytes);
  space.AddSlab(space.ReserveSpan(kGranuleBytes));
  const uint64_t a = space.TakeSlice(4096);
  EXPECT_FALSE(space.Retire(a + 512));
  EXPECT_TRUE(space.Retire(a));
}

TEST(DeviceSpace, EverythingComesBackUnderRandomUse) {
  constexpr uint64_t kSpace = 256 * kGranuleBytes;
  DeviceSpace space(kBegin, kSpace);
  std::mt19937 random(3);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const bool large = random() % 4 == 0;
      const uint64_t size =
          large ? kLargeBytes + random() % (4 * kGranuleBytes) : 1 + random() % (kLargeBytes - 1);
      uint64_t address = 0;
      if (large) {
        address = space.ReserveSpan(RoundUpToGranule(size));
        if (address != 0) space.AddLarge(address, RoundUpToGranule(size), size);
      } else if ((address = space.TakeSlice(size)) == 0) {
        const uint64_t slab = space.ReserveSpan(kGranuleBytes);
        if (slab != 0) {
          space.AddSlab(slab);
          address = space.TakeSlice(size);
        }
      }
      if (address == 0) continue;
      for (const auto& [begin, bytes] : live) {
        ASSERT_TRUE(address + size <= begin || begin + bytes <= address);
      }
      live.emplace_back(address, size);
    } else {
      const size_t i = random() % live.size();
      ASSERT_TRUE(space.Retire(live[i].first));
      const auto span = space.Free(live[i].first);
      if (span.size_bytes != 0) space.ReleaseSpan(span.address, span.size_bytes);
      live.erase(live.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  for (const auto& [address, size] : live) {
    ASSERT_TRUE(space.Retire(address));
    const auto span = space.Free(address);
    if (span.size_bytes != 0) space.ReleaseSpan(span.address, span.size_bytes);
  }
  EXPECT_EQ(space.ReserveSpan(kSpace), kBegin) << "one piece again";
}

TEST(RangeTable, ContainsAcrossNeighboursButNotGaps) {
  RangeTable table;
  ASSERT_TRUE(table.Add(0x1000, 0x1000));
  ASSERT_TRUE(table.Add(0x2000, 0x1000));
  ASSERT_TRUE(table.Add(0x4000, 0x1000));
  EXPECT_TRUE(table.Contains(0x1000, 0x2000));
  EXPECT_TRUE(table.Contains(0x1800, 0x1000));
  EXPECT_FALSE(table.Contains(0x1000, 0x2001));
  EXPECT_FALSE(table.Contains(0x2800, 0x2000));
  EXPECT_FALSE(table.Contains(0x3800, 0x1000));
  EXPECT_FALSE(table.Contains(0xfff, 1));
  EXPECT_TRUE(table.Contains(0x5000, 0));
  EXPECT_FALSE(table.Contains(0x5000, 1));
  EXPECT_FALSE(table.Contains(0x4000, UINT64_MAX));
}

TEST(RangeTable, RefusesOverlapsEmptyAndWrapping) {
  RangeTable table;
  ASSERT_TRUE(table.Add(0x1000, 0x1000));
  EXPECT_FALSE(table.Add(0x1fff, 1));
  EXPECT_FALSE(table.Add(0x800, 0x801));
  EXPECT_FALSE(table.Add(0x3000, 0));
  EXPECT_FALSE(table.Add(UINT64_MAX - 10, 100));
  EXPECT_TRUE(table.Overlaps(UINT64_MAX - 10, 100));
  EXPECT_TRUE(table.Add(0x800, 0x800));
  EXPECT_TRUE(table.Remove(0x1000));
  EXPECT_FALSE(table.Remove(0x1000));
  EXPECT_TRUE(table.Add(0x1000, 0x1000));
}

}  // namespace
}  // namespace gpuloom::executor
