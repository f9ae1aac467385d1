// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/machine/fma.h"

#include <cmath>

#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

template <class T>
void Write(Warp& warp, const Instr& in, const T* results) {
  T* d = warp.Destination<T>(in.d);
  if (warp.exec == kAllLanes) {
    std::memcpy(d, results, sizeof(T) * kLanes);
  } else {
    ForEach(warp.exec, [&](uint32_t i) { d[i] = results[i]; });
  }
}

template <class T>
Step FmaByLibrary(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  const T* c = warp.Source<T>(in.c);
  return Apply<T>(warp, in, [=](uint32_t i) { return Canonical(std::fma(a[i], b[i], c[i])); });
}

#if defined(__x86_64__)
// The loops stand in these functions themselves, as only they are compiled for FMA.
__attribute__((target("avx2,fma"))) Step FmaByProcessor32(Warp& warp, const Instr& in) {
  const float* a = warp.Source<float>(in.a);
  const float* b = warp.Source<float>(in.b);
  const float* c = warp.Source<float>(in.c);
  float results[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    const float r = __builtin_fmaf(a[i], b[i], c[i]);
    results[i] = r != r ? std::bit_cast<float>(0x7fffffffu) : r;
  }
  Write(warp, in, results);
  return Step::kNext;
}

__attribute__((target("avx2,fma"))) Step FmaByProcessor64(Warp& warp, const Instr& in) {
  const double* a = warp.Source<double>(in.a);
  const double* b = warp.Source<double>(in.b);
  const double* c = warp.Source<double>(in.c);
  double results[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) results[i] = __builtin_fma(a[i], b[i], c[i]);
  Write(warp, in, results);
  return Step::kNext;
}
#endif

}  // namespace

Handler FmaHandler(size_t size_bytes) {
#if defined(__x86_64__)
  static const bool has_fma =
      __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("avx2") != 0;
  if (has_fma) return size_bytes == 4 ? FmaByProcessor32 : FmaByProcessor64;
#endif
  return size_bytes == 4 ? FmaByLibrary<float> : FmaByLibrary<double>;
}

}  // namespace gpuloom::softgpu
