// SPDX-License-Identifier: Apache-2.0
// An image with managed variables that are large enough to migrate where managed memory does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::conformance {

inline constexpr size_t kLargeVariableBytes = size_t{8} << 20;
// `sweep` adds its parameter to one word of `large` in each KiB, and 1 to `beside` for each of them.
inline constexpr size_t kSweptStepBytes = 1024;
inline constexpr unsigned kSweptWords = kLargeVariableBytes / kSweptStepBytes;
inline constexpr uint32_t kBesideBegins = 5;

inline constexpr char kLargeVariables[] = R"(
.version 8.0
.target sm_70
.address_size 64

.visible .global .attribute(.managed) .align 4 .u32 beside = 5;
.visible .global .attribute(.managed) .align 4 .b8 large[8388608];

.visible .entry sweep(.param .u32 by)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r1, [by];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %rd1, %r5, 1024;
  mov.u64 %rd2, large;
  add.u64 %rd3, %rd2, %rd1;
  ld.global.u32 %r6, [%rd3];
  add.u32 %r6, %r6, %r1;
  st.global.u32 [%rd3], %r6;
  mov.u64 %rd4, beside;
  atom.global.add.u32 %r7, [%rd4], 1;
  ret;
}
)";

}  // namespace gpuloom::conformance
