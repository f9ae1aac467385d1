// SPDX-License-Identifier: Apache-2.0
#include "agent/node/one_line.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(OneLine, Malicious_NothingBeginsALineOrWritesOnATerminal) {
  EXPECT_EQ(OneLine("a\nb\rc\x1b[2J\x7f\tz", 100), "a\\nb\\x0dc\\x1b[2J\\x7f\\x09z");
}

TEST(OneLine, Malicious_ControlsOfTheTerminalBeyondAscii) {
  EXPECT_EQ(OneLine("\xc2\x9b"
                    "2J",
                    100),
            "\\xc2\\x9b2J")
      << "CSI in UTF-8";
  EXPECT_EQ(OneLine("\x9b"
                    "2J",
                    100),
            "\\x9b2J")
      << "and as a byte of its own";
  EXPECT_EQ(OneLine("\xc0\x9b", 100), "\\xc0\\x9b") << "and written longer than needed";
  EXPECT_EQ(OneLine("\xe0\x82\x9b", 100), "\\xe0\\x82\\x9b");
  EXPECT_EQ(OneLine("a\u202egnp.exe", 100), "a\\xe2\\x80\\xaegnp.exe") << "turns the text round";
  EXPECT_EQ(OneLine("a\u2028z\u2066z", 100), "a\\xe2\\x80\\xa8z\\xe2\\x81\\xa6z");
  EXPECT_EQ(OneLine("\xed\xa0\x80\xf4\x90\x80\x80\xff\xe6\xbc", 100),
            "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xff\\xe6\\xbc");
}

TEST(OneLine, WordsOfAnyLanguageStay) {
  EXPECT_EQ(OneLine("Größe … 漢字 🙂", 100), "Größe … 漢字 🙂");
}

TEST(OneLine, WhatIsTooLongIsCutBetweenCharacters) {
  EXPECT_EQ(OneLine("12345", 5), "12345");
  EXPECT_EQ(OneLine("123456", 5), "12345…");
  EXPECT_EQ(OneLine("1234ö", 5), "1234…");
  EXPECT_EQ(OneLine("123漢", 5), "123…");
  EXPECT_EQ(OneLine("1234\n", 5), "1234…") << "no half of an escape";
  EXPECT_EQ(OneLine("\x80\x80\x80", 9), "\\x80\\x80…") << "what is no UTF-8 is cut, too";
}

}  // namespace
}  // namespace gpuloom
