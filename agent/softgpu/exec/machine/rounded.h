// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic with the rounding modes, flushing and saturation of PTX. Pure, except ScopedRound, which
// changes the calling thread's rounding mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "agent/softgpu/exec/machine/half.h"

namespace gpuloom::softgpu {

// How a result is made, kept in Instr::extra.
enum FloatMode : uint16_t {
  kRoundMask = 0x07,  // a Round
  kFlush = 0x08,      // .ftz: subnormal operands and results become zeros
  kSaturate = 0x10,   // .sat: into [0, 1], not-a-number to 0
  kRelu = 0x20,       // negative results and not-a-number handling of .relu
};

[[nodiscard]] inline Round RoundOf(uint16_t mode) { return static_cast<Round>(mode & kRoundMask); }

// A GPU's single-precision operations return this not-a-number, whatever their operands contain.
inline float Canonical(float value) {
  return value != value ? std::bit_cast<float>(0x7fffffffu) : value;
}
inline double Canonical(double value) { return value; }

// `result`, which an operation made of `operands`. A not-a-number that double precision makes of numbers has its sign set
// on a GPU, as on x86, and not on arm64.
template <class T, class... Operands>
[[gnu::always_inline]] inline T Made(T result, Operands... operands) {
#if defined(__aarch64__)
  if constexpr (sizeof(T) == 8) {
    if (result != result && ((operands == operands) && ...)) {
      return std::bit_cast<double>(uint64_t{0xfff8000000000000});
    }
  }
#else
  (static_cast<void>(operands), ...);
#endif
  return result;
}

inline float Flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
inline double Flushed(double value) { return value; }

template <class T>
T In(T value, uint16_t mode) {
  return mode & kFlush ? Flushed(value) : value;
}

template <class T>
T Out(T value, uint16_t mode) {
  if (mode & kFlush) value = Flushed(value);
  if (mode & kSaturate) return value > T{0} ? (value < T{1} ? value : T{1}) : T{0};
  return Canonical(value);
}

// The limit below which values become zero, if `mode` says so.
template <class T>
T LeastOf(uint16_t mode) {
  return sizeof(T) == 4 && (mode & kFlush) != 0 ? std::numeric_limits<T>::min() : T{0};
}
template <class T>
T FlushedBelow(T value, T least) {
  return std::fabs(value) < least ? std::copysign(T{0}, value) : value;
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 give the upper half of a double.
inline float UpperHalf(float value) { return value; }
inline double UpperHalf(double value) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & 0xffffffff00000000u);
}

// Sets the processor's rounding mode while it lives; rounded.cc. Operands under it must come from memory and results go
// to memory, between two Pinned(): the compiler moves other operations in and out.
class ScopedRound {
 public:
  explicit ScopedRound(Round round);
  ~ScopedRound();
  ScopedRound(const ScopedRound&) = delete;
  ScopedRound& operator=(const ScopedRound&) = delete;

 private:
  int before_;
};

// Tells the compiler that the value may change, and is used, here.
template <class T>
[[gnu::always_inline]] inline void Pinned(T& value) {
  asm volatile("" : "+m"(value));
}

// a + b with its last bit set when it is not exact ("round to odd"). Rounding that once more to a narrower format gives
// the same as rounding the exact sum.
[[nodiscard]] double AddRoundToOdd(double a, double b);

}  // namespace gpuloom::softgpu
