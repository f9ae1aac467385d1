// SPDX-License-Identifier: Apache-2.0
// Policies and a GPU for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agent/policy/policy_parser.h"

namespace gpuloom {

// Of text that is one.
inline Policy MustParse(const std::string& text) {
  std::string error;
  const std::optional<Policy> policy = ParsePolicy("p.yaml", text, &error);
  EXPECT_TRUE(policy) << error;
  return policy.value_or(Policy());
}

inline Capacity H200() {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  return {"GPU-1", 140 * kGiB, 6 * kGiB, 10, 3, "NVIDIA H200"};
}

}  // namespace gpuloom
