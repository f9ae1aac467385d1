// SPDX-License-Identifier: Apache-2.0
// Which of the processor's vector instructions the handlers use. A handler exists once for each level,
// and the decoder takes the one for the level that is in force: what it gives is the same to the bit.
//
// Only functions marked for a level contain its instructions, so that the library runs on any x86-64.
#pragma once

#include <cstdint>

#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

// AVX-512 would be a third: it was no faster than AVX2 on an EPYC of 2022, which has it.
enum class VectorLevel : uint8_t {
  kPlain,  // what the compiler takes for granted
  kAvx2,   // and fused multiply-add
};

// The best of this processor.
[[nodiscard]] VectorLevel BestVectorLevel();
// That of modules loaded from now on: the best, unless a test has chosen another.
[[nodiscard]] VectorLevel ChosenVectorLevel();
void ChooseVectorLevel(VectorLevel level);

// Not where compiling twice costs more than it gives: sanitizers, and builds without optimisation.
#if defined(__x86_64__) && defined(GPULOOM_SOFTGPU_VECTORS)
// flatten: everything that kBody calls is compiled for the level, too.
template <auto kBody, class... Args>
[[gnu::target("avx2,fma,bmi,bmi2,popcnt"), gnu::flatten]] auto OnAvx2(Args... args) {
  return kBody(args...);
}
#endif

// kBody for the level: a pointer to a function of the same type.
template <auto kBody>
struct Levels;
template <class R, class... Args, R (*kBody)(Args...)>
struct Levels<kBody> {
  using Pointer = R (*)(Args...);
  static Pointer At(VectorLevel level) {
#if defined(__x86_64__) && defined(GPULOOM_SOFTGPU_VECTORS)
    if (level == VectorLevel::kAvx2) return OnAvx2<kBody, Args...>;
#endif
    (void)level;
    return kBody;
  }
};

template <auto kBody>
[[nodiscard]] auto ForVectors() {
  return Levels<kBody>::At(ChosenVectorLevel());
}

}  // namespace gpuloom::softgpu
