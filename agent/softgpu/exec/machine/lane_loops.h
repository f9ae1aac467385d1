// SPDX-License-Identifier: Apache-2.0
// Loops over the lanes of a warp, and masks with a bit for each lane. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace gpuloom::softgpu {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

// The bit of each lane, for testing a mask for many lanes at once.
struct LaneBits {
  alignas(64) uint32_t of[kLanes];
};
inline constexpr LaneBits kLaneBits = [] {
  LaneBits bits{};
  for (uint32_t i = 0; i < kLanes; ++i) bits.of[i] = 1u << i;
  return bits;
}();
inline bool IsOn(uint32_t mask, uint32_t lane) { return (mask & kLaneBits.of[lane]) != 0; }

// f(lane) for every executing lane.
template <class F>
inline void ForEach(uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
}

// Calls f(lane) for all lanes, several at a time. What f writes may overlap what it reads only in the same lane.
// Registers satisfy this: two of them are the same or do not overlap.
template <uint32_t kCount = kLanes, class F>
[[gnu::always_inline]] inline void ForAll(F f) {
#if defined(__clang__)
// Its own pragma warns wherever a loop is not vectorised.
#else
#pragma GCC ivdep
#endif
  for (uint32_t i = 0; i < kCount; ++i) f(i);
}

// A mask of the lanes for which f(lane) is true.
template <class F>
[[gnu::always_inline]] inline uint32_t MaskOf(F f) {
  uint32_t bits = 0;
  ForAll([&](uint32_t i) { bits |= f(i) ? kLaneBits.of[i] : 0; });
  return bits;
}

}  // namespace gpuloom::softgpu
