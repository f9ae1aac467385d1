// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/kept_memory.h"

#include <gtest/gtest.h>

namespace gpuloom::executor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

PhysicalRef Memory(uint64_t size_bytes) {
  auto memory = std::make_shared<Physical>();
  memory->size_bytes = size_bytes;
  return memory;
}

TEST(KeptMemory, GivesWhatWasKeptLastOfExactlyTheSize) {
  KeptMemory kept;
  KeptMemory::Block block;
  EXPECT_TRUE(kept.empty());
  EXPECT_FALSE(kept.TakeMapped(2 * kMiB, &block));
  ASSERT_TRUE(kept.Keep({Memory(2 * kMiB), 0x1000, 1}));
  ASSERT_TRUE(kept.Keep({Memory(2 * kMiB), 0x2000, 2}));
  ASSERT_TRUE(kept.Keep({Memory(4 * kMiB), 0x3000, 3}));
  EXPECT_EQ(kept.size_bytes(), 8 * kMiB);
  EXPECT_FALSE(kept.TakeMapped(6 * kMiB, &block));
  ASSERT_TRUE(kept.TakeMapped(2 * kMiB, &block));
  EXPECT_EQ(block.address, 0x2000u);
  ASSERT_TRUE(kept.TakeMapped(2 * kMiB, &block));
  EXPECT_EQ(block.address, 0x1000u);
  EXPECT_FALSE(kept.TakeMapped(2 * kMiB, &block));
  EXPECT_EQ(kept.size_bytes(), 4 * kMiB);
  EXPECT_FALSE(kept.empty());
}

TEST(KeptMemory, WhatIsNotMappedIsApart) {
  KeptMemory kept;
  KeptMemory::Block block;
  ASSERT_TRUE(kept.Keep({Memory(2 * kMiB), 0, 1}));
  EXPECT_FALSE(kept.TakeMapped(2 * kMiB, &block));
  ASSERT_TRUE(kept.TakeUnmapped(2 * kMiB, &block));
  EXPECT_EQ(block.address, 0u);
  EXPECT_TRUE(kept.empty());
}

TEST(KeptMemory, WhatIsOldGoes) {
  KeptMemory kept;
  for (uint64_t time = 1; time <= 10; ++time) {
    ASSERT_TRUE(kept.Keep({Memory(2 * kMiB), time % 2 == 0 ? time : 0, time}));
  }
  ASSERT_TRUE(kept.Keep({Memory(8 * kMiB), 99, 3}));
  EXPECT_TRUE(kept.TakeUntil(0).empty());
  EXPECT_EQ(kept.TakeUntil(6).size(), 7u);
  EXPECT_EQ(kept.size_bytes(), 8 * kMiB);
  EXPECT_EQ(kept.TakeUntil(6).size(), 0u);
  EXPECT_EQ(kept.TakeAll().size(), 4u);
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(kept.size_bytes(), 0u);
}

TEST(KeptMemory, IsBounded) {
  KeptMemory kept;
  for (size_t i = 0; i < KeptMemory::kMostBlocks; ++i) {
    ASSERT_TRUE(kept.Keep({Memory(2 * kMiB), i, i}));
  }
  EXPECT_FALSE(kept.Keep({Memory(2 * kMiB), 1, 1}));
  KeptMemory::Block block;
  ASSERT_TRUE(kept.TakeMapped(2 * kMiB, &block));
  EXPECT_TRUE(kept.Keep({Memory(2 * kMiB), 1, 1}));
}

}  // namespace
}  // namespace gpuloom::executor
