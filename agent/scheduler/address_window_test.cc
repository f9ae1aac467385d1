// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/address_window.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(AddressWindow, TakesTheLowestThatFits) {
  AddressWindow window(channel::Range{0x5000'0000'0000, 32 * kGiB});
  channel::Range a, b, c, d;
  ASSERT_TRUE(window.Take(4 * kGiB, &a));
  EXPECT_EQ(a.begin, 0x5000'0000'0000u);
  ASSERT_TRUE(window.Take(12 * kGiB, &b));
  EXPECT_EQ(b.begin, a.begin + 4 * kGiB);
  ASSERT_TRUE(window.Take(1 * kGiB, &c));
  window.Free(a);
  ASSERT_TRUE(window.Take(6 * kGiB, &d));
  EXPECT_EQ(d.begin, c.begin + 1 * kGiB) << "the gap is too small";
  ASSERT_TRUE(window.Take(4 * kGiB, &a));
  EXPECT_EQ(a.begin, 0x5000'0000'0000u);
}

TEST(AddressWindow, KnowsWhatIsFree) {
  AddressWindow window(channel::Range{0x5000'0000'0000, 32 * kGiB});
  channel::Range a;
  ASSERT_TRUE(window.Take(12 * kGiB, &a));
  EXPECT_EQ(window.free_bytes(), 20 * kGiB);
  window.Free(a);
  window.Free(a);
  EXPECT_EQ(window.free_bytes(), 32 * kGiB);
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

TEST(AddressWindow, RefusesSizesThatAreNoUnits) {
  AddressWindow window(kDeviceWindow);
  channel::Range range;
  EXPECT_FALSE(window.Take(0, &range));
  EXPECT_FALSE(window.Take(3 * kGiB + 4096, &range));
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
      if (!window.Take(kGiB * (1 + random() % 64), &range)) continue;
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

}  // namespace
}  // namespace gpuloom::scheduler
