// SPDX-License-Identifier: Apache-2.0
// Compiled with -frounding-math, so that the compiler keeps operations between changes of the mode.
#include "agent/softgpu/exec/machine/rounded.h"

#include <cfenv>

namespace gpuloom::softgpu {
namespace {

class ScopedRound {
 public:
  explicit ScopedRound(Round round) : before_(std::fegetround()) {
    switch (round) {
      case Round::kZero:
        std::fesetround(FE_TOWARDZERO);
        break;
      case Round::kDown:
        std::fesetround(FE_DOWNWARD);
        break;
      case Round::kUp:
        std::fesetround(FE_UPWARD);
        break;
      default:
        std::fesetround(FE_TONEAREST);
        break;
    }
  }
  ~ScopedRound() { std::fesetround(before_); }
  ScopedRound(const ScopedRound&) = delete;
  ScopedRound& operator=(const ScopedRound&) = delete;

 private:
  int before_;
};

// volatile: neither moved out of the scope nor computed at compile time.
template <class T, class F>
T Under(Round round, T a, T b, T c, F f) {
  volatile T x = a;
  volatile T y = b;
  volatile T z = c;
  const ScopedRound scope(round);
  volatile T result = f(static_cast<T>(x), static_cast<T>(y), static_cast<T>(z));
  return result;
}

}  // namespace

template <class T>
T AddRounded(T a, T b, Round round) {
  return Under<T>(round, a, b, T{0}, [](T x, T y, T) { return x + y; });
}
template <class T>
T MulRounded(T a, T b, Round round) {
  return Under<T>(round, a, b, T{0}, [](T x, T y, T) { return x * y; });
}
template <class T>
T FmaRounded(T a, T b, T c, Round round) {
  return Under<T>(round, a, b, c, [](T x, T y, T z) { return std::fma(x, y, z); });
}
template <class T>
T DivRounded(T a, T b, Round round) {
  return Under<T>(round, a, b, T{0}, [](T x, T y, T) { return x / y; });
}
template <class T>
T SqrtRounded(T a, Round round) {
  return Under<T>(round, a, T{0}, T{0}, [](T x, T, T) { return std::sqrt(x); });
}

template float AddRounded(float, float, Round);
template float MulRounded(float, float, Round);
template float FmaRounded(float, float, float, Round);
template float DivRounded(float, float, Round);
template float SqrtRounded(float, Round);
template double AddRounded(double, double, Round);
template double MulRounded(double, double, Round);
template double FmaRounded(double, double, double, Round);
template double DivRounded(double, double, Round);
template double SqrtRounded(double, Round);

double AddToOdd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  // Knuth's two-sum: `rest` is exactly what `sum` lacks.
  const double b_part = sum - a;
  const double rest = (a - (sum - b_part)) + (b - b_part);
  if (rest == 0) return sum;
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (bits & 1) return sum;
  // Of the two neighbours of the exact sum the odd one: toward zero when `sum` went too far.
  const bool too_far = (rest > 0) != (sum > 0);
  bits = too_far ? bits - 1 : bits + 1;
  return std::bit_cast<double>(bits);
}

}  // namespace gpuloom::softgpu
