// SPDX-License-Identifier: Apache-2.0
// One conversion between any two PTX types, as cvt makes it. Pure.
#pragma once

#include <cstdint>

#include "agent/softgpu/exec/machine/half.h"
#include "agent/softgpu/ptx/types.h"

namespace gpuloom::softgpu {

struct Conversion {
  ptx::Type to = ptx::Type::kNone;
  ptx::Type from = ptx::Type::kNone;
  Round round = Round::kNearest;
  bool to_integral = false;  // .rni .rzi .rmi .rpi: the result is a whole number
  bool flush = false;        // .ftz
  bool saturate = false;     // .sat
  bool relu = false;         // .relu
  bool tf32 = false;         // to the 19 bits of tf32
  bool finite = false;       // .satfinite: what is too large becomes the largest number
};

// `bits` holds a value of `from` in its low bits. The result is a value of `to`, extended to 64
// bits according to its type.
[[nodiscard]] uint64_t Convert(const Conversion& how, uint64_t bits);
// Rounds as requested; exact where the format allows.
[[nodiscard]] float ToSingle(double value, Round round);
[[nodiscard]] double RoundToIntegral(double value, Round round);

}  // namespace gpuloom::softgpu
