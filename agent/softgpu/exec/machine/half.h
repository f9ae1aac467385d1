// SPDX-License-Identifier: Apache-2.0
// IEEE half precision and bfloat16 in software, because compilers disagree about their own types
// for them. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace gpuloom::softgpu {

struct Half {
  uint16_t bits = 0;
};
struct Bfloat {
  uint16_t bits = 0;
};

// Numbers of eight bits: E4m3 has four bits of exponent, three of fraction, and no infinities; E5m2
// has five and two.
struct E4m3 {
  uint8_t bits = 0;
};
struct E5m2 {
  uint8_t bits = 0;
};

enum class Round : uint8_t { kNearest, kNearestAway, kZero, kDown, kUp };

// Exact.
[[nodiscard]] float ToFloat(Half value);
[[nodiscard]] inline float ToFloat(Bfloat value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
// Rounds once, whatever the size of the source; not-a-number becomes the canonical one.
[[nodiscard]] Half ToHalf(double value, Round round = Round::kNearest);
[[nodiscard]] Bfloat ToBfloat(double value, Round round = Round::kNearest);

// Exact.
[[nodiscard]] float ToFloat(E4m3 value);
[[nodiscard]] inline float ToFloat(E5m2 value) {
  return ToFloat(Half{static_cast<uint16_t>(value.bits << 8)});
}
// Rounds to the nearest. What is too large, including infinities, becomes the largest finite
// number.
[[nodiscard]] E4m3 ToE4m3(double value);
[[nodiscard]] E5m2 ToE5m2(double value);

// The value as a comparison uses it.
inline float Value(float value) { return value; }
inline double Value(double value) { return value; }
inline float Value(Half value) { return ToFloat(value); }
inline float Value(Bfloat value) { return ToFloat(value); }

}  // namespace gpuloom::softgpu
