// SPDX-License-Identifier: Apache-2.0
#include "agent/node/one_line.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(OneLine, Malicious_NothingBeginsALineOrWritesOnATerminal) {
  EXPECT_EQ(OneLine("a\nb\rc\x1b[2J\x7f\tz", 100), "a\\nb\\x0dc\\x1b[2J\\x7f\\x09z");
}

TEST(OneLine, WordsOfAnyLanguageStay) { EXPECT_EQ(OneLine("Größe … 漢字", 100), "Größe … 漢字"); }

TEST(OneLine, WhatIsTooLongIsCutBetweenCharacters) {
  EXPECT_EQ(OneLine("12345", 5), "12345");
  EXPECT_EQ(OneLine("123456", 5), "12345…");
  EXPECT_EQ(OneLine("1234ö", 5), "1234…");
  EXPECT_EQ(OneLine("123漢", 5), "123…");
  EXPECT_EQ(OneLine("1234\n", 5), "1234…") << "no half of an escape";
  EXPECT_EQ(OneLine("\x80\x80\x80\x80\x80\x80", 5), "\x80\x80\x80\x80\x80…")
      << "what is no UTF-8 is cut, too";
}

}  // namespace
}  // namespace gpuloom
