// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/spare_memory.h"

#include <gtest/gtest.h>

namespace gpuloom::scheduler {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class CountingDevice : public Device {
 public:
  uint32_t CreateMemory(uint64_t, uint64_t* handle, channel::UniqueFd*) override {
    if (full) return 2;
    ++live;
    *handle = ++made;
    return 0;
  }
  void ReleaseMemory(uint64_t) override { --live; }

  bool full = false;
  int live = 0;
  uint64_t made = 0;
};

TEST(SpareMemory, IsOfTheSizeAskedForTwiceInAShortTime) {
  CountingDevice device;
  SpareMemory spare(&device);
  const SpareMemory::Time now{};
  EXPECT_FALSE(spare.Note(2 * kMiB, now));
  EXPECT_FALSE(spare.Note(20 * kMiB, now));
  EXPECT_TRUE(spare.Note(20 * kMiB, now));
  EXPECT_FALSE(spare.Note(20 * kMiB, now + SpareMemory::kSoon));
  EXPECT_FALSE(spare.Note(128 * kMiB, now));
  EXPECT_FALSE(spare.Note(128 * kMiB, now)) << "too large";
}

TEST(SpareMemory, IsTakenOnceAndDropped) {
  CountingDevice device;
  uint64_t handle = 0;
  channel::UniqueFd fd;
  {
    SpareMemory spare(&device);
    (void)spare.Note(2 * kMiB, {});
    spare.Make();
    spare.Make();
    EXPECT_EQ(device.made, 1u);
    EXPECT_EQ(spare.Take(4 * kMiB, &handle, &fd), 0u);
    EXPECT_EQ(handle, 2u) << "another size";
    EXPECT_EQ(spare.Take(2 * kMiB, &handle, &fd), 0u);
    EXPECT_EQ(handle, 1u);
    EXPECT_EQ(spare.Take(2 * kMiB, &handle, &fd), 0u);
    EXPECT_EQ(handle, 3u);
    EXPECT_FALSE(spare.Drop());
    spare.Make();
    EXPECT_EQ(device.live, 4);
    (void)spare.Note(6 * kMiB, {});
    spare.Make();
    EXPECT_EQ(device.live, 4) << "the one of the other size has gone";
    EXPECT_TRUE(spare.Drop());
    EXPECT_EQ(device.live, 3);
    device.full = true;
    spare.Make();
    EXPECT_FALSE(spare.Drop());
    EXPECT_EQ(spare.Take(6 * kMiB, &handle, &fd), 2u);
    device.full = false;
    spare.Make();
  }
  EXPECT_EQ(device.live, 3) << "gone with its keeper";
}

}  // namespace
}  // namespace gpuloom::scheduler
