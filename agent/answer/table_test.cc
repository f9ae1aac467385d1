// SPDX-License-Identifier: Apache-2.0
#include "agent/answer/table.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(Table, ColumnsStandBelowEachOtherInAnyLanguage) {
  EXPECT_EQ(FormatTable({{"POD", "STATE"}, {"größer", "runs"}, {"a", "-"}}),
            "POD      STATE\n"
            "größer   runs\n"
            "a        -\n");
}

TEST(Table, WhatIsTooLongIsCutBetweenLetters) {
  EXPECT_EQ(CutToLetters("größer", 6), "größer");
  EXPECT_EQ(CutToLetters("größer", 5), "größ…");
  EXPECT_EQ(CutToLetters("größer", 1), "…");
  EXPECT_EQ(CutToLetters("größer", 0), "");
}

TEST(Table, SizesAreRounded) {
  EXPECT_EQ(RoundedSize(0), "0.0MiB");
  EXPECT_EQ(RoundedSize(uint64_t{1536} << 20), "1.5GiB");
  EXPECT_EQ(Decimal(2.26), "2.3");
}

}  // namespace
}  // namespace gpuloom
