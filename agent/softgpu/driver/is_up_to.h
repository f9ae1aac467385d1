// SPDX-License-Identifier: Apache-2.0
// Whether a number that a program passed is one of an enumeration's. Pure.
#pragma once

#include <cstdint>
#include <type_traits>

namespace gpuloom::softgpu {

// For one of CUDA's enumerations whose enumerators begin at 0. Compared without a sign: as an int, a value beyond
// INT_MAX would be below every enumerator.
template <typename E>
[[nodiscard]] constexpr bool IsUpTo(E last, E value) {
  static_assert(std::is_enum_v<E>);
  return static_cast<uint32_t>(value) <= static_cast<uint32_t>(last);
}

}  // namespace gpuloom::softgpu
