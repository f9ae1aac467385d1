// SPDX-License-Identifier: Apache-2.0
// Which of the processor's vector instructions the handlers use. A handler exists once for each level, and the decoder
// takes the one for the level in force; the results are the same to the bit. Safe from any thread.
//
// Only functions marked for a level contain its instructions, so the library runs on any x86-64.
#pragma once

#include <cstdint>

#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

// AVX-512 would be a third level: it was not faster than AVX2 on an EPYC of 2022, which has it.
enum class VectorLevel : uint8_t {
  kPlain,  // what the compiler takes for granted
  kAvx2,   // and fused multiply-add
};

// The best level of this processor.
[[nodiscard]] VectorLevel BestVectorLevel();
// The level of modules that are loaded from here on: the best, unless a test has chosen another one.
[[nodiscard]] VectorLevel ChosenVectorLevel();
void ChooseVectorLevel(VectorLevel level);

// Left out where compiling twice costs more than it gains: in sanitizer builds, and without optimisation.
#if defined(__x86_64__) && defined(GPULOOM_SOFTGPU_VECTORS)
// flatten: everything that kBody calls is compiled for the level, too.
template <auto kBody, class... Args>
[[gnu::target("avx2,fma,bmi,bmi2,popcnt"), gnu::flatten]] auto OnAvx2(Args... args) {
  return kBody(args...);
}
#endif

// A pointer to the version of kBody for the level, with the same type.
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
