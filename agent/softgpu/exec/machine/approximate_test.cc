// SPDX-License-Identifier: Apache-2.0
// What is taken for certain is what the C library gives.
#include "agent/softgpu/exec/machine/approximate.h"

#include <gtest/gtest.h>

namespace gpuloom::softgpu {
namespace {

template <class F>
void CompareWithLibrary() {
  // A prime step through all floats: every exponent, both signs, not-a-number.
  constexpr uint64_t kStep = 4093;
  uint32_t doubtful = 0;
  uint32_t known = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep) {
    const float a = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!F::IsKnown(a)) continue;
    ++known;
    const double near = F::Near(static_cast<double>(a));
    const auto low = static_cast<float>(near * kBelow);
    if (std::bit_cast<uint32_t>(low) !=
        std::bit_cast<uint32_t>(static_cast<float>(near * kAbove))) {
      ++doubtful;
      continue;
    }
    const auto exact = static_cast<float>(F::Exact(static_cast<double>(a)));
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(low)) << a;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(low), std::bit_cast<uint32_t>(exact)) << a;
    }
  }
  EXPECT_GT(known, 100'000u);
  EXPECT_LT(doubtful, known / 10'000);
}

TEST(Approximate, Exponential) { CompareWithLibrary<Exponential>(); }
TEST(Approximate, Logarithm) { CompareWithLibrary<Logarithm>(); }
TEST(Approximate, InverseRoot) { CompareWithLibrary<InverseRoot>(); }
TEST(Approximate, Sine) { CompareWithLibrary<Sine>(); }
TEST(Approximate, Cosine) { CompareWithLibrary<Cosine>(); }

}  // namespace
}  // namespace gpuloom::softgpu
