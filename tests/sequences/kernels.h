// SPDX-License-Identifier: Apache-2.0
// The device code of the sequences, as PTX text that the driver compiles. "STAMP" is replaced by a
// number, so that modules differ.
#pragma once

namespace gpuloom::sequences {

// Kernels, all but `spin` over n words, of which each thread takes one:
//   add(words*, n, value)               words[i] += value
//   mix(words*, n, value)               words[i] = words[i] * 1664525 + value + i
//   stamp(words*, n, value)             words[i] = (words[i] ^ STAMP) + value
//   copy(to*, from*, n, value)          to[i] = from[i] ^ value
//   bump(words*, n)                     words[i] += table[i % 64]
//   note(words*, n)                     words[i] ^= board[i % 64]
//   reverse(words*, n, value)           each block's words backwards, through dynamic shared memory,
//                                       and value added
//   spin(ns)                            by the device's clock
//   fetch(to*, n, texture, width)       to[i] = the element of a two-dimensional texture of words
//   fetch_line(to*, n, texture)         the same of linear memory
//   store(surface, n, width, value)     element i = value + i
//   count_down(handle, word*)           --*word, which the condition becomes
//   choose(handle, word*)               the condition becomes *word & 1
// Variables: table (64 words), board (64 words, managed).
inline constexpr char kKernels[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .global .align 16 .b8 table[256];
.extern .shared .align 16 .b8 dynamic[];

.visible .entry add(.param .u64 words, .param .u32 n, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.u32 %r7, %r7, %r2;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry mix(.param .u64 words, .param .u32 n, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  mul.lo.u32 %r7, %r7, 1664525;
  add.u32 %r7, %r7, %r2;
  add.u32 %r7, %r7, %r6;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry stamp(.param .u64 words, .param .u32 n, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  xor.b32 %r7, %r7, STAMP;
  add.u32 %r7, %r7, %r2;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 n, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [from];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r7, [%rd5];
  xor.b32 %r7, %r7, %r2;
  st.global.u32 [%rd4], %r7;
DONE:
  ret;
}

.visible .entry bump(.param .u64 words, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  and.b32 %r2, %r6, 63;
  mul.wide.u32 %rd4, %r2, 4;
  mov.u64 %rd5, table;
  add.s64 %rd6, %rd5, %rd4;
  ld.global.u32 %r7, [%rd3];
  ld.global.u32 %r8, [%rd6];
  add.u32 %r7, %r7, %r8;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry reverse(.param .u64 words, .param .u32 n, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r7, 0;
  @%p1 bra LOADED;
  ld.global.u32 %r7, [%rd3];
LOADED:
  mov.u32 %r8, dynamic;
  shl.b32 %r9, %r5, 2;
  add.s32 %r9, %r8, %r9;
  st.shared.u32 [%r9], %r7;
  bar.sync 0;
  sub.s32 %r10, %r4, %r5;
  shl.b32 %r10, %r10, 2;
  add.s32 %r11, %r8, %r10;
  ld.shared.u32 %r7, [%r11+-4];
  add.u32 %r7, %r7, %r2;
  @%p1 bra DONE;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry spin(.param .u64 ns)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
LOOP:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra LOOP;
  ret;
}

.visible .entry fetch(.param .u64 to, .param .u32 n, .param .u64 texture, .param .u32 width)
{
  .reg .pred %p<2>;
  .reg .b32 %r<16>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [n];
  ld.param.u64 %rd4, [texture];
  ld.param.u32 %r2, [width];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  rem.u32 %r7, %r6, %r2;
  div.u32 %r8, %r6, %r2;
  cvt.rn.f32.u32 %f1, %r7;
  cvt.rn.f32.u32 %f2, %r8;
  tex.2d.v4.u32.f32 {%r9, %r10, %r11, %r12}, [%rd4, {%f1, %f2}];
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r9;
DONE:
  ret;
}

.visible .entry fetch_line(.param .u64 to, .param .u32 n, .param .u64 texture)
{
  .reg .pred %p<2>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [n];
  ld.param.u64 %rd4, [texture];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  tex.1d.v4.u32.s32 {%r9, %r10, %r11, %r12}, [%rd4, {%r6}];
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r9;
DONE:
  ret;
}

.visible .entry store(.param .u64 surface, .param .u32 n, .param .u32 width, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [surface];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [width];
  ld.param.u32 %r10, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  rem.u32 %r7, %r6, %r2;
  div.u32 %r8, %r6, %r2;
  shl.b32 %r7, %r7, 2;
  add.u32 %r9, %r6, %r10;
  sust.b.2d.b32.trap [%rd1, {%r7, %r8}], {%r9};
DONE:
  ret;
}
)PTX";

// Behind kKernels in the same text. Code with managed variables is never shared with other processes.
inline constexpr char kBoardKernels[] = R"PTX(
.visible .global .attribute(.managed) .align 16 .b8 board[256];

.visible .entry note(.param .u64 words, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  and.b32 %r2, %r6, 63;
  mul.wide.u32 %rd4, %r2, 4;
  mov.u64 %rd5, board;
  add.s64 %rd6, %rd5, %rd4;
  ld.global.u32 %r7, [%rd3];
  ld.global.u32 %r8, [%rd6];
  xor.b32 %r7, %r7, %r8;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}
)PTX";

// Apart, because only a driver that knows conditional nodes compiles it.
inline constexpr char kConditionKernels[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional
(
  .param .b64 cudaGraphSetConditional_param_0,
  .param .b32 cudaGraphSetConditional_param_1
)
;

.visible .entry count_down(.param .u64 handle, .param .u64 word)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [word];
  ld.global.u32 %r1, [%rd2];
  sub.s32 %r2, %r1, 1;
  st.global.u32 [%rd2], %r2;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd1;
  .param .b32 param1;
  st.param.b32 [param1+0], %r2;
  call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}

.visible .entry choose(.param .u64 handle, .param .u64 word)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [word];
  ld.global.u32 %r1, [%rd2];
  and.b32 %r2, %r1, 1;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd1;
  .param .b32 param1;
  st.param.b32 [param1+0], %r2;
  call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}
)PTX";

}  // namespace gpuloom::sequences
