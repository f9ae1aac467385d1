// SPDX-License-Identifier: Apache-2.0
#include "agent/run/unsupported_report.h"

#include <gtest/gtest.h>

namespace gpuloom::run {
namespace {

TEST(UnsupportedLine, NamesWhatWasAskedFor) {
  control::AllocationState state = {};
  EXPECT_EQ(UnsupportedLine(state), "");
  state.unsupported_count = 1;
  control::SetText(state.unsupported, "cuOne\n");
  EXPECT_EQ(UnsupportedLine(state), "gpuloom: 1 unsupported CUDA function was asked for: cuOne\n");
  state.unsupported_count = 3;
  control::SetText(state.unsupported, "cuOne\ncuTwo\ncuThree\n");
  EXPECT_EQ(UnsupportedLine(state),
            "gpuloom: 3 unsupported CUDA functions were asked for: cuOne, cuTwo, cuThree\n");
}

TEST(UnsupportedLine, CountsMoreThanItCanName) {
  control::AllocationState state = {};
  state.unsupported_count = 200;
  control::SetText(state.unsupported, std::string(sizeof(state.unsupported), 'x').c_str());
  const std::string line = UnsupportedLine(state);
  EXPECT_EQ(line.find("gpuloom: 200 unsupported CUDA functions were asked for: xxx"), 0u);
  EXPECT_EQ(line.back(), '\n');
}

}  // namespace
}  // namespace gpuloom::run
