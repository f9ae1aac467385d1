// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/use_table.h"

#include <gtest/gtest.h>

namespace gpuloom::graph {
namespace {

TEST(UseTable, TellsWhatWasNoted) {
  UseTable table;
  EXPECT_EQ(table.Find(4096), nullptr);
  // Addresses of allocations differ in their upper bits.
  constexpr uint32_t kAddresses = 1000;
  for (uint32_t i = 1; i <= kAddresses; ++i) {
    ASSERT_TRUE(table.Reserve(1));
    table.Add(i * CUdeviceptr{4096})->frees = i;
  }
  EXPECT_EQ(table.count(), kAddresses);
  for (uint32_t i = 1; i <= kAddresses; ++i) {
    ASSERT_NE(table.Find(i * CUdeviceptr{4096}), nullptr);
    EXPECT_EQ(table.Find(i * CUdeviceptr{4096})->frees, i);
  }
  EXPECT_EQ(table.Find((kAddresses + 1) * CUdeviceptr{4096}), nullptr);
  EXPECT_EQ(table.Find(0), nullptr);
  table.Free();
  EXPECT_EQ(table.Find(4096), nullptr);
}

TEST(UseTable, AddsUpWhatItTakesOver) {
  UseTable table;
  UseTable other;
  ASSERT_TRUE(table.Reserve(1));
  *table.Add(512) = {512, 2, 1};
  ASSERT_TRUE(other.Reserve(2));
  *other.Add(512) = {512, 0, 1};
  *other.Add(1024) = {1024, 1, 0};
  ASSERT_TRUE(table.Reserve(other.count()));
  table.Take(&other);
  EXPECT_EQ(other.count(), 0u);
  EXPECT_EQ(other.Find(512), nullptr);
  EXPECT_EQ(table.count(), 2u);
  EXPECT_EQ(table.Find(512)->allocations, 2u);
  EXPECT_EQ(table.Find(512)->frees, 2u);
  EXPECT_EQ(table.Find(1024)->allocations, 1u);
  table.Free();
}

}  // namespace
}  // namespace gpuloom::graph
