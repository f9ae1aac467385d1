// SPDX-License-Identifier: Apache-2.0
#include "agent/run/terminal_screen.h"

#include <gtest/gtest.h>

namespace gpuloom::run {
namespace {

TEST(FitToScreen, WhatFitsStays) {
  EXPECT_EQ(FitToScreen("a\nbc\n\nd\n", 2, 4), "a\nbc\n\nd");
  EXPECT_EQ(FitToScreen("", 80, 24), "");
}

TEST(FitToScreen, LongLinesAreCutByLetters) {
  EXPECT_EQ(FitToScreen("größer\ngröße\n", 5, 2), "größ…\ngröße");
}

TEST(FitToScreen, LinesBelowAreCounted) {
  EXPECT_EQ(FitToScreen("1\n2\n3\n4\n5\n", 20, 3), "1\n2\n… 3 more lines");
  EXPECT_EQ(FitToScreen("1\n2\n3\n", 20, 1), "… 3 more lines");
  EXPECT_EQ(FitToScreen("1\n2\n3\n", 4, 1), "… 3…");
}

}  // namespace
}  // namespace gpuloom::run
