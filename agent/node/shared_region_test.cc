// SPDX-License-Identifier: Apache-2.0
#include "agent/node/shared_region.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <utility>

#include "proto/channel/region.h"

namespace gpuloom {
namespace {

using Access = SharedRegion::Access;
constexpr size_t kBytes = 8192;

class SharedRegionTest : public ::testing::Test {
 protected:
  const channel::UniqueFd memory_ = channel::MakeSealedMemory("test", kBytes);
  SharedRegion region_;
};

TEST_F(SharedRegionTest, BothMappingsShowTheSameBytes) {
  ASSERT_TRUE(region_.Map(memory_.get(), kBytes, Access::kReadWrite));
  EXPECT_EQ(region_.size(), kBytes);
  SharedRegion other;
  ASSERT_TRUE(other.Map(memory_.get(), kBytes, Access::kReadOnly));
  region_.data()[kBytes - 1] = 7;
  EXPECT_EQ(other.data()[kBytes - 1], 7);
}

TEST_F(SharedRegionTest, WhatMayOnlyBeReadCannotBeMadeWritable) {
  const channel::UniqueFd read_only = channel::ReopenReadOnly(memory_.get());
  ASSERT_TRUE(region_.Map(read_only.get(), kBytes, Access::kReadOnly));
  EXPECT_NE(mprotect(region_.data(), kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(region_.Map(read_only.get(), kBytes, Access::kReadWrite));
  EXPECT_EQ(errno, EACCES);
}

TEST_F(SharedRegionTest, AFailureLeavesNothingAndSaysWhy) {
  EXPECT_FALSE(region_.Map(-1, kBytes, Access::kReadWrite));
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(region_.data(), nullptr);
  EXPECT_EQ(region_.size(), 0u);
  EXPECT_FALSE(region_.Map(memory_.get(), 0, Access::kReadWrite));
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SharedRegionTest, MovesTheMappingAndUnmapsWhatItHad) {
  ASSERT_TRUE(region_.Map(memory_.get(), kBytes, Access::kReadWrite));
  uint8_t* const data = region_.data();
  SharedRegion moved = std::move(region_);
  EXPECT_EQ(moved.data(), data);
  moved = SharedRegion();
  unsigned char resident = 0;
  EXPECT_NE(mincore(data, kBytes / 2, &resident), 0) << "still mapped";
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace gpuloom
