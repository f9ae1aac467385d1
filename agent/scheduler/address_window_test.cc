#include "agent/scheduler/address_window.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(AddressWindow, GoesRoundTheWindowBeforeItUsesARangeAgain) {
  AddressWindow window(channel::Range{0x5000'0000'0000, 16 * kGiB});
  channel::Range a, b, c, d;
  ASSERT_TRUE(window.Take(4 * kGiB, &a));
  EXPECT_EQ(a.begin, 0x5000'0000'0000u);
  window.Free(a);
  ASSERT_TRUE(window.Take(4 * kGiB, &b));
  EXPECT_EQ(b.begin, a.begin + 4 * kGiB);
  ASSERT_TRUE(window.Take(8 * kGiB, &c));
  EXPECT_EQ(c.begin, a.begin + 8 * kGiB);
  ASSERT_TRUE(window.Take(2 * kGiB, &d));
  EXPECT_EQ(d.begin, a.begin);
}

TEST(AddressWindow, AlignsToTheSize) {
  AddressWindow window(channel::Range{0x5000'0000'0000, 64 * kGiB});
  channel::Range small, large;
  ASSERT_TRUE(window.Take(1 * kGiB, &small));
  ASSERT_TRUE(window.Take(16 * kGiB, &large));
  EXPECT_EQ(large.begin % (16 * kGiB), 0u);
  EXPECT_GE(large.begin, small.begin + small.size_bytes);
}

TEST(AddressWindow, RefusesWhenFullAndServesAgainAfterFree) {
  AddressWindow window(channel::Range{0x5000'0000'0000, 8 * kGiB});
  channel::Range a, b, c;
  ASSERT_TRUE(window.Take(4 * kGiB, &a));
  ASSERT_TRUE(window.Take(4 * kGiB, &b));
  EXPECT_FALSE(window.Take(4 * kGiB, &c));
  EXPECT_FALSE(window.Take(16 * kGiB, &c));
  window.Free(b);
  EXPECT_TRUE(window.Take(4 * kGiB, &c));
}

TEST(AddressWindow, RefusesSizesThatAreNoPowerOfTwo) {
  AddressWindow window(kDeviceWindow);
  channel::Range range;
  EXPECT_FALSE(window.Take(0, &range));
  EXPECT_FALSE(window.Take(3 * kGiB, &range));
}

TEST(AddressWindow, FreeOfSomethingNeverTakenChangesNothing) {
  AddressWindow window(kDeviceWindow);
  channel::Range range;
  ASSERT_TRUE(window.Take(4 * kGiB, &range));
  window.Free(channel::Range{range.begin, kGiB});
  window.Free(channel::Range{range.begin + kGiB, kGiB});
  EXPECT_EQ(window.taken_count(), 1u);
}

TEST(AddressWindow, RangesStayDisjointUnderRandomUse) {
  AddressWindow window(kHostWindow);
  std::mt19937 random(7);
  std::vector<channel::Range> taken;
  for (int step = 0; step < 5000; ++step) {
    if (taken.empty() || random() % 3 != 0) {
      channel::Range range;
      if (!window.Take(kGiB << (random() % 7), &range)) continue;
      ASSERT_TRUE(kHostWindow.Contains(range.begin, range.size_bytes));
      for (const channel::Range& other : taken) {
        ASSERT_TRUE(range.begin + range.size_bytes <= other.begin ||
                    other.begin + other.size_bytes <= range.begin);
      }
      taken.push_back(range);
    } else {
      const size_t i = random() % taken.size();
      window.Free(taken[i]);
      taken.erase(taken.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

TEST(AddressWindow, SizesForQuotasAndLimits) {
  EXPECT_EQ(DeviceRangeBytes(0), 4 * kGiB);
  EXPECT_EQ(DeviceRangeBytes(2 * kGiB), 4 * kGiB);
  EXPECT_EQ(DeviceRangeBytes(3 * kGiB), 8 * kGiB);
  EXPECT_EQ(DeviceRangeBytes(141 * kGiB), 512 * kGiB);
  EXPECT_EQ(DeviceRangeBytes(UINT64_MAX), uint64_t{1} << 41);
  EXPECT_EQ(HostRangeBytes(0), kGiB);
  EXPECT_EQ(HostRangeBytes(kGiB), 4 * kGiB);
  EXPECT_EQ(HostRangeBytes(UINT64_MAX), 64 * kGiB);
}

}  // namespace
}  // namespace gpuloom::scheduler
