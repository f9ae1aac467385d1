// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/retirement.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t MapPages(uint64_t count) {
  void* at =
      mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(at);
}

bool IsMapped(uint64_t page) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page), kPage, &resident) == 0;
}

TEST(Retirement, PagesAreGivenBackWhenNobodyTouchesThem) {
  Retirement& retirement = Retirement::Instance();
  const uint64_t begin = MapPages(1);
  std::optional<Retirement::Touching> kernel(std::in_place);
  *reinterpret_cast<char*>(begin) = 1;
  retirement.Unmap(begin, kPage);
  ASSERT_TRUE(IsMapped(begin));
  EXPECT_EQ(*reinterpret_cast<char*>(begin), 0);
  kernel.reset();
  EXPECT_FALSE(IsMapped(begin));
}

TEST(Retirement, WhatIsTakenBackStaysAndTheRestGoes) {
  Retirement& retirement = Retirement::Instance();
  const uint64_t begin = MapPages(8);
  std::optional<Retirement::Touching> kernel(std::in_place);
  retirement.Unmap(begin, 2 * kPage);
  retirement.Unmap(begin + 2 * kPage, 6 * kPage);
  const auto taken = retirement.TakeBack(begin + kPage, 4 * kPage);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].begin, begin + kPage);
  EXPECT_EQ(taken[0].end(), begin + 2 * kPage);
  EXPECT_EQ(taken[1].begin, begin + 2 * kPage);
  EXPECT_EQ(taken[1].end(), begin + 5 * kPage);
  EXPECT_TRUE(retirement.TakeBack(begin + kPage, 4 * kPage).empty());
  kernel.reset();
  for (uint64_t page = 0; page < 8; ++page) {
    EXPECT_EQ(IsMapped(begin + page * kPage), page >= 1 && page < 5) << page;
  }
  munmap(reinterpret_cast<void*>(begin + kPage), 4 * kPage);
}

}  // namespace
}  // namespace gpuloom::softgpu
