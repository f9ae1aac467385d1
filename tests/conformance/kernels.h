// SPDX-License-Identifier: Apache-2.0
// The device code of the conformance tests, as PTX text: the binary carries everything it needs,
// and real driver and software driver compile the same source.
#pragma once

namespace gpuloom::conformance {

// Kernels:
//   add(a*, b*, out*, n)                       float vectors
//   fill(out*, value, n)                       32-bit words
//   increment(counter*)                        atomically
//   wait_for(flag*)                            until the host sets *flag; gives up after 100 s
//   append(journal*, id)                       journal[0] counts, journal[1 + k] is the k-th id
//   spin(ns)                                   by the device's clock
//   reverse(values*)                           one block, through dynamic shared memory
//   scatter(u8, u64, u16, struct 20 B, f64, out*)   where each parameter lies
//   use_globals(out*)                          counter += factor; out = counter
//   store(address, value)                      one 32-bit word, wherever
// Variables: counter (7), factor (constant, 3), table (64 words).
inline constexpr char kKernels[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .u32 factor = 3;
.visible .global .align 16 .b8 table[256];
.extern .shared .align 16 .b8 dynamic[];

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd4, %r5, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
DONE:
  ret;
}

.visible .entry fill(.param .u64 out, .param .u32 value, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<7>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
DONE:
  ret;
}

.visible .entry increment(.param .u64 target)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [target];
  atom.global.add.u32 %r1, [%rd1], 1;
  ret;
}

.visible .entry wait_for(.param .u64 flag)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [flag];
  mov.u64 %rd2, %globaltimer;
LOOP:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p2, %rd4, 100000000000;
  @%p2 bra LOOP;
DONE:
  ret;
}

.visible .entry append(.param .u64 journal, .param .u32 id)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [journal];
  ld.param.u32 %r1, [id];
  atom.global.add.u32 %r2, [%rd1], 1;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3+4], %r1;
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

.visible .entry say_and_spin(.param .u64 started, .param .u64 ns)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd5, [started];
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
  st.volatile.global.u32 [%rd5], 1;
LOOP:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra LOOP;
  ret;
}

.visible .entry reverse(.param .u64 values)
{
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [values];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  mov.u32 %r4, dynamic;
  shl.b32 %r5, %r1, 2;
  add.s32 %r5, %r4, %r5;
  st.shared.u32 [%r5], %r3;
  bar.sync 0;
  sub.s32 %r6, %r2, %r1;
  shl.b32 %r6, %r6, 2;
  add.s32 %r7, %r4, %r6;
  ld.shared.u32 %r8, [%r7+-4];
  st.global.u32 [%rd3], %r8;
  ret;
}

.visible .entry scatter(.param .u8 small, .param .u64 wide, .param .u16 medium,
                        .param .align 4 .b8 record[20], .param .f64 real, .param .u64 out)
{
  .reg .b16 %h<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  .reg .f64 %fd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u8 %h1, [small];
  cvt.u64.u16 %rd2, %h1;
  st.global.u64 [%rd1], %rd2;
  ld.param.u64 %rd3, [wide];
  st.global.u64 [%rd1+8], %rd3;
  ld.param.u16 %h2, [medium];
  cvt.u64.u16 %rd2, %h2;
  st.global.u64 [%rd1+16], %rd2;
  ld.param.u32 %r1, [record];
  ld.param.u32 %r2, [record+4];
  ld.param.u32 %r3, [record+8];
  ld.param.u32 %r4, [record+12];
  ld.param.u32 %r5, [record+16];
  st.global.u32 [%rd1+24], %r1;
  st.global.u32 [%rd1+28], %r2;
  st.global.u32 [%rd1+32], %r3;
  st.global.u32 [%rd1+36], %r4;
  st.global.u32 [%rd1+40], %r5;
  ld.param.f64 %fd1, [real];
  st.global.f64 [%rd1+48], %fd1;
  ret;
}

.visible .entry use_globals(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [counter];
  ld.const.u32 %r2, [factor];
  add.s32 %r3, %r1, %r2;
  st.global.u32 [counter], %r3;
  st.global.u32 [%rd1], %r3;
  ret;
}

.visible .entry store(.param .u64 address, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}
)PTX";

}  // namespace gpuloom::conformance
