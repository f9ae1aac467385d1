// SPDX-License-Identifier: Apache-2.0
// Directed rounding by the processor's mode, and rounding to odd without it.
#include "agent/softgpu/exec/machine/rounded.h"

#include <cfenv>

namespace gpuloom::softgpu {
namespace {

int ModeOf(Round round) {
  switch (round) {
    case Round::kZero:
      return FE_TOWARDZERO;
    case Round::kDown:
      return FE_DOWNWARD;
    case Round::kUp:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

}  // namespace

// The mode is the thread's: handlers restore it before they return, as everything else here counts
// on rounding to the nearest.
ScopedRound::ScopedRound(Round round) : before_(std::fegetround()) {
  std::fesetround(ModeOf(round));
}
ScopedRound::~ScopedRound() { std::fesetround(before_); }

double AddRoundToOdd(double a, double b) {
  const double sum = a + b;
  // Infinity and not-a-number: there is no rest to speak of.
  if (!std::isfinite(sum)) return sum;
  // Knuth's two-sum: `rest` is exactly what `sum` lacks.
  const double b_part = sum - a;
  const double rest = (a - (sum - b_part)) + (b - b_part);
  if (rest == 0) return sum;
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  // The sum is odd already, as an inexact one has to be.
  if (bits & 1) return sum;
  // Of the two neighbours of the exact sum, the odd one: toward zero when `sum` went too far.
  const bool too_far = (rest > 0) != (sum > 0);
  bits = too_far ? bits - 1 : bits + 1;
  return std::bit_cast<double>(bits);
}

}  // namespace gpuloom::softgpu
