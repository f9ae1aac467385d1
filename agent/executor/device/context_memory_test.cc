// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/context_memory.h"

#include <gtest/gtest.h>

namespace gpuloom::executor {
namespace {

using Kind = ContextMemory::Kind;

TEST(ContextMemory, WhoMakesItLargerPaysForWhatItGrowsBy) {
  ContextMemory memory(270'336);  // 132 multiprocessors
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 0), 0u);
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 1024), 0u) << "every context has that";
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 4096), 3072u * 270'336);
  memory.Raise(Kind::kThread, 4096, nullptr);
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 4096), 0u);
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 5000), 904u * 270'336);
  memory.Raise(Kind::kThread, 2048, nullptr);
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 4096), 0u) << "it is never made smaller";
}

TEST(ContextMemory, KindsAreApart) {
  ContextMemory memory(1000);
  memory.Raise(Kind::kHeap, 64u << 20, nullptr);
  EXPECT_EQ(memory.PriceOf(Kind::kHeap, 65u << 20), 1u << 20);
  EXPECT_EQ(memory.PriceOf(Kind::kPrintf, 2u << 20), 1u << 20);
  EXPECT_EQ(memory.PriceOf(Kind::kThread, 1025), 1000u);
}

}  // namespace
}  // namespace gpuloom::executor
