// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic as PTX defines it, without the undefined behaviour of C++. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace gpuloom::softgpu {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

// The type of twice the size: int16 → int32 … int64 → 128 bits.
template <class T>
struct Twice;
template <>
struct Twice<uint16_t> {
  using Type = uint32_t;
};
template <>
struct Twice<int16_t> {
  using Type = int32_t;
};
template <>
struct Twice<uint32_t> {
  using Type = uint64_t;
};
template <>
struct Twice<int32_t> {
  using Type = int64_t;
};
template <>
struct Twice<uint64_t> {
  using Type = UnsignedWide;
};
template <>
struct Twice<int64_t> {
  using Type = Wide;
};

// Computed in 64 bits, because 16-bit operands would be promoted to int, whose overflow is
// undefined.
template <class T>
T AddWrap(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class T>
T SubWrap(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <class T>
T MulWrap(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
typename Twice<T>::Type MulWide(T a, T b) {
  using W = typename Twice<T>::Type;
  return static_cast<W>(a) * static_cast<W>(b);
}
template <class T>
T MulHigh(T a, T b) {
  return static_cast<T>(MulWide(a, b) >> (8 * sizeof(T)));
}
template <>
inline int16_t MulHigh(int16_t a, int16_t b) {
  return static_cast<int16_t>((int32_t{a} * int32_t{b}) >> 16);
}

// For a division by zero, and its remainder, a GPU gives all ones.
template <class T>
T DivideOrAllOnes(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return SubWrap(T{0}, a);
  }
  return static_cast<T>(a / b);
}
template <class T>
T RemainderOrAllOnes(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}

inline int32_t Saturate32(int64_t value) {
  if (value > std::numeric_limits<int32_t>::max()) return std::numeric_limits<int32_t>::max();
  if (value < std::numeric_limits<int32_t>::min()) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(value);
}

}  // namespace gpuloom::softgpu
