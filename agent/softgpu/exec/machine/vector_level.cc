// SPDX-License-Identifier: Apache-2.0
// Asked once of the processor; the choice is a setting of the process, for tests of both levels.
#include "agent/softgpu/exec/machine/vector_level.h"

#include <atomic>

namespace gpuloom::softgpu {
namespace {

VectorLevel Find() {
#if defined(__x86_64__) && defined(GPULOOM_SOFTGPU_VECTORS)
  // All of what OnAvx2 may use, and not AVX2 alone: a hypervisor may hide some of them.
  __builtin_cpu_init();
  const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                   __builtin_cpu_supports("popcnt");
  return has ? VectorLevel::kAvx2 : VectorLevel::kPlain;
#else
  return VectorLevel::kPlain;
#endif
}

std::atomic<VectorLevel>& Chosen() {
  static std::atomic<VectorLevel> level{BestVectorLevel()};
  return level;
}

}  // namespace

VectorLevel BestVectorLevel() {
  static const VectorLevel best = Find();
  return best;
}

// Relaxed: handlers are chosen when a module is decoded, and whoever chooses has no other data to
// order.
VectorLevel ChosenVectorLevel() { return Chosen().load(std::memory_order_relaxed); }
void ChooseVectorLevel(VectorLevel level) { Chosen().store(level, std::memory_order_relaxed); }

}  // namespace gpuloom::softgpu
