// SPDX-License-Identifier: Apache-2.0
// The device code of the benchmark, as PTX text: the binary carries everything it needs, and the
// real and the software driver compile the same source.
#pragma once

#include <string>

namespace gpuloom::bench {

// Kernels, each with four parameters (u64, u64, u32, u32), which is what the launch figures are
// about:
//   nothing(-, -, -, -)             returns: a launch and nothing else
//   nothing_0 … nothing_7           the same, for sequences of different functions
//   count(counter*, -, step, -)     adds step, atomically
//   fill(out*, -, seed, n)          out[i] = seed + 3 * i for 32-bit words i < n
inline constexpr int kNothings = 8;
inline constexpr char kDifferentKernels[] = R"PTX(
.version 7.0
.target sm_80
.address_size 64

.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u32 c, .param .u32 d)
{
  ret;
}

.visible .entry count(.param .u64 counter, .param .u64 b, .param .u32 step, .param .u32 d)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter];
  ld.param.u32 %r1, [step];
  atom.global.add.u32 %r2, [%rd1], %r1;
  ret;
}

.visible .entry fill(.param .u64 out, .param .u64 b, .param .u32 seed, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [seed];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mad.lo.s32 %r7, %r6, 3, %r1;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}
)PTX";

// work(out*, iterations): as much arithmetic as it is told, counted and not timed, so that a kernel
// that loses the device half-way takes longer. Loaded only by who works (work.cc).
inline constexpr char kWorkKernel[] = R"PTX(
.version 7.0
.target sm_80
.address_size 64

.visible .entry work(.param .u64 out, .param .u32 iterations)
{
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [iterations];
  mov.u32 %r2, %tid.x;
AGAIN:
  mad.lo.u32 %r2, %r2, 1664525, 1013904223;
  shr.u32 %r3, %r2, 16;
  xor.b32 %r2, %r2, %r3;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  mov.u32 %r4, %ctaid.x;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
)PTX";

inline std::string Kernels() {
  std::string text = kDifferentKernels;
  for (int i = 0; i < kNothings; ++i) {
    text += "\n.visible .entry nothing_" + std::to_string(i) +
            "(.param .u64 a, .param .u64 b, .param .u32 c, .param .u32 d)\n{\n  ret;\n}\n";
  }
  return text;
}

}  // namespace gpuloom::bench
