// IEEE half precision and bfloat16 in software: compilers disagree about their own types for them.
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

enum class Round : uint8_t { kNearest, kNearestAway, kZero, kDown, kUp };

// Exact.
[[nodiscard]] float ToFloat(Half value);
[[nodiscard]] inline float ToFloat(Bfloat value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
// Rounds once, whatever the size of the source; not-a-number becomes the canonical one.
[[nodiscard]] Half ToHalf(double value, Round round = Round::kNearest);
[[nodiscard]] Bfloat ToBfloat(double value, Round round = Round::kNearest);

// What a comparison compares.
inline float Value(float value) { return value; }
inline double Value(double value) { return value; }
inline float Value(Half value) { return ToFloat(value); }
inline float Value(Bfloat value) { return ToFloat(value); }

}  // namespace gpuloom::softgpu
