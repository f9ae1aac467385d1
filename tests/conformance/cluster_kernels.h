// SPDX-License-Identifier: Apache-2.0
// Device code for launches that ask for more than a shape. Of its own, because clusters need a newer
// target than the rest.
#pragma once

namespace gpuloom::conformance {

// Kernels:
//   meet(counter*, seen*)     every block adds one to *counter and waits until all have; then each
//                             writes what it read to seen[block]. Ends only when all are resident.
//   exchange(out*)            block i of a cluster writes its rank where its neighbour reads it
//                             (distributed shared memory); out[block] = neighbour's rank * 100 + size
//   fixed_pair(out*)          the same, made for clusters of two
inline constexpr char kClusterKernels[] = R"PTX(
.version 8.0
.target sm_90
.address_size 64

.visible .entry meet(.param .u64 counter, .param .u64 seen)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [counter];
  ld.param.u64 %rd2, [seen];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %nctaid.x;
  atom.global.add.u32 %r3, [%rd1], 1;
WAIT:
  ld.volatile.global.u32 %r4, [%rd1];
  setp.lt.u32 %p1, %r4, %r2;
  @%p1 bra WAIT;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r4;
  ret;
}

.visible .entry exchange(.param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  .shared .align 4 .u32 box;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_ctarank;
  mov.u32 %r3, %cluster_nctarank;
  mov.u32 %r4, box;
  st.shared.u32 [%r4], %r2;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  add.u32 %r5, %r2, 1;
  rem.u32 %r6, %r5, %r3;
  mapa.shared::cluster.u32 %r7, %r4, %r6;
  ld.shared::cluster.u32 %r8, [%r7];
  barrier.cluster.arrive;
  barrier.cluster.wait;
  mad.lo.u32 %r9, %r8, 100, %r3;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r9;
  ret;
}

.visible .entry fixed_pair(.param .u64 out)
.explicitcluster
.reqnctapercluster 2, 1, 1
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_ctarank;
  mov.u32 %r3, %cluster_nctarank;
  mad.lo.u32 %r4, %r2, 100, %r3;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r4;
  ret;
}
)PTX";

}  // namespace gpuloom::conformance
