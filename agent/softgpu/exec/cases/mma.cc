// SPDX-License-Identifier: Apache-2.0
// Matrix products. Group is lane / 4, place is lane % 4; exact in every precision used here.
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

// Half precision: 0x3c00 is 1, 0x4000 2, 0x4200 3, 0x4400 4. bfloat16: 0x3f80 is 1, 0x4000 2,
// 0x4040 3, 0x4080 4. The pairs of A are (1, 2), those of B (3, 4): each pair adds 11.
constexpr Case kCases[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0,%r10,%r11,%r12},{%r1,%r1,%r1,%r1},"
     "{%r2,%r2},{%r3,%r3,%r3,%r3};",
     'r',
     {0x40003c00, 0x44004200, F(0.5f)},
     F(88.5f)},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r10,%r11,%r12,%r0},{%r1,%r1},{%r2},"
     "{%r3,%r3,%r3,%r3};",
     'r',
     {0x40003c00, 0x44004200, F(0.5f)},
     F(44.5f)},
    // 88 + 1 is 0x5590, 88 + 2 0x55a0.
    {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r10,%r0},{%r1,%r1,%r1,%r1},{%r2,%r2},"
     "{%r3,%r3};",
     'r',
     {0x40003c00, 0x44004200, 0x40003c00},
     0x55a05590},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r10,%r0,%r11,%r12},{%r1,%r1,%r1,%r1},"
     "{%r2,%r2},{%r3,%r3,%r3,%r3};",
     'r',
     {0x40003f80, 0x40804040, F(0.5f)},
     F(88.5f)},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%r10,%r11,%r0,%r12},{%r1,%r1},{%r2},"
     "{%r3,%r3,%r3,%r3};",
     'r',
     {0x40003f80, 0x40804040, F(0.5f)},
     F(44.5f)},
    // The lane is A's element (group, place) and B's (place, group).
    {"cvt.rn.f32.u32 %r13, %r9; "
     "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%r10,%r14,%r11,%r12},{%r13,%r13},{%r13},"
     "{%r3,%r3,%r3,%r3}; mov.b32 %r0, %r14;",
     'r',
     {0, 0, F(0.0f)},
     0,
     [](uint32_t lane) -> uint64_t {
       uint32_t sum = 0;
       for (uint32_t k = 0; k < 4; ++k) sum += (lane / 4 * 4 + k) * ((lane % 4 * 2 + 1) * 4 + k);
       return F(static_cast<float>(sum));
     }},
    // As above for columns 0 to 3 of A; the others, and rows 4 to 7 of B, hold 1 and the lane.
    {"cvt.rn.f32.u32 %r13, %r9; "
     "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r10,%r11,%r14,%r12},{%r13,%r13,%r1,%r1},"
     "{%r13,%r13},{%r3,%r3,%r3,%r3}; mov.b32 %r0, %r14;",
     'r',
     {F(1.0f), 0, F(0.0f)},
     0,
     [](uint32_t lane) -> uint64_t {
       uint32_t sum = 0;
       for (uint32_t k = 0; k < 4; ++k) sum += (lane / 4 * 4 + k + 1) * (lane % 4 * 8 + k);
       return F(static_cast<float>(sum));
     }},
    // Bytes -1, 2, 3, 4 and 1, 2, 3, 4: 28 in a register.
    {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r0,%r10,%r11,%r12},{%r1,%r1,%r1,%r1},"
     "{%r2,%r2},{%r3,%r3,%r3,%r3};",
     'r',
     {0x040302ff, 0x04030201, 5},
     8 * 28 + 5},
    {"mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%r10,%r0,%r11,%r12},{%r1,%r1},{%r2},"
     "{%r3,%r3,%r3,%r3};",
     'r',
     {0x000000ff, 0x000000ff, 5},
     static_cast<uint32_t>(5 - 4 * 255)},
    {"mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%r10,%r0,%r11,%r12},{%r1,%r1},"
     "{%r2},{%r3,%r3,%r3,%r3};",
     'r',
     {0x00000001, 0x00000001, 0x7ffffffe},
     0x7fffffff},
    // The lane in the only element of A's row that is not 0.
    {"and.b32 %r13, %r9, 3; setp.eq.u32 %p10, %r13, 0; selp.b32 %r13, %r9, 0, %p10; "
     "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%r10,%r11,%r14,%r12},{%r2,%r13},{%r1},"
     "{%r2,%r2,%r2,%r2}; mov.b32 %r0, %r14;",
     'r',
     {0x01010101, 0, 0},
     0,
     [](uint32_t lane) -> uint64_t { return lane / 4 * 4; }},
    // Row i of each matrix holds 8 * i and the next seven numbers.
    {"{ .reg .b32 %row<3>; mov.u32 %row0, shared; mad.lo.u32 %row0, %r9, 4, %row0; "
     "mul.lo.u32 %row1, %r9, 0x20002; add.u32 %row1, %row1, 0x10000; st.shared.u32 [%row0], %row1; "
     "bar.warp.sync -1; mov.u32 %row2, shared; and.b32 %row1, %r9, 7; "
     "mad.lo.u32 %row2, %row1, 16, %row2; "
     "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%row2]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t {
       const uint32_t first = lane / 4 * 8 + lane % 4 * 2;
       return (first + 1) << 16 | first;
     }},
    // With a generic address.
    {"{ .reg .b32 %row<3>; .reg .b64 %at<2>; mov.u32 %row0, shared; mad.lo.u32 %row0, %r9, 4, "
     "%row0; mul.lo.u32 %row1, %r9, 0x20002; add.u32 %row1, %row1, 0x10000; "
     "st.shared.u32 [%row0], %row1; bar.warp.sync -1; mov.u32 %row2, shared; "
     "and.b32 %row1, %r9, 7; mad.lo.u32 %row2, %row1, 16, %row2; cvt.u64.u32 %at0, %row2; "
     "cvta.shared.u64 %at1, %at0; ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%at1]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t {
       const uint32_t first = lane / 4 * 8 + lane % 4 * 2;
       return (first + 1) << 16 | first;
     }},
    {"{ .reg .b32 %row<3>; mov.u32 %row0, shared; mad.lo.u32 %row0, %r9, 4, %row0; "
     "mul.lo.u32 %row1, %r9, 0x20002; add.u32 %row1, %row1, 0x10000; st.shared.u32 [%row0], %row1; "
     "bar.warp.sync -1; mov.u32 %row2, shared; and.b32 %row1, %r9, 7; "
     "mad.lo.u32 %row2, %row1, 16, %row2; "
     "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10,%r11,%r12,%r0}, [%row2]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t {
       const uint32_t first = lane % 4 * 16 + lane / 4;
       return (first + 8) << 16 | first;
     }},
    // Stored by rows, then each lane reads the word that lies where its own number says.
    {"{ .reg .b32 %row<4>; mov.u32 %row0, shared; mad.lo.u32 %row1, %r9, 4, %row0; "
     "mul.lo.u32 %row2, %r9, 0x20002; add.u32 %row2, %row2, 0x10000; and.b32 %row3, %r9, 7; "
     "mad.lo.u32 %row3, %row3, 16, %row0; "
     "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%row3], {%row2}; "
     "bar.warp.sync -1; ld.shared.u32 %r0, [%row1]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return (2 * lane + 1) << 16 | 2 * lane; }},
    // By columns: element (i, j) is 8 * j + i.
    {"{ .reg .b32 %row<4>; mov.u32 %row0, shared; mad.lo.u32 %row1, %r9, 4, %row0; "
     "mul.lo.u32 %row2, %r9, 0x20002; add.u32 %row2, %row2, 0x10000; and.b32 %row3, %r9, 7; "
     "mad.lo.u32 %row3, %row3, 16, %row0; "
     "stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%row3], {%r9, %row2}; "
     "bar.warp.sync -1; ld.shared.u32 %r0, [%row1]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t {
       const uint32_t first = lane % 4 * 16 + lane / 4;
       return (first + 8) << 16 | first;
     }},
    // Four matrices into one: the last lies where lanes 24 and on say.
    {"{ .reg .b32 %row<4>; mov.u32 %row0, shared; mad.lo.u32 %row1, %r9, 4, %row0; "
     "and.b32 %row3, %r9, 7; mad.lo.u32 %row3, %row3, 16, %row0; setp.lt.u32 %p10, %r9, 24; "
     "add.u32 %row2, %row3, 128; selp.b32 %row3, %row2, %row3, %p10; "
     "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%row3], {%r1, %r1, %r1, %r9}; "
     "bar.warp.sync -1; ld.shared.u32 %r0, [%row1]; }",
     'r',
     {7},
     0,
     [](uint32_t lane) -> uint64_t { return lane; }},
    {"{ .reg .b32 %row<1>; mul.lo.u32 %row0, %r9, 0x20002; add.u32 %row0, %row0, 0x10000; "
     "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %row0; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t {
       const uint32_t first = lane % 4 * 16 + lane / 4;
       return (first + 8) << 16 | first;
     }},
    // The product of one column of ones and one row of twos.
    {"{ .reg .b32 %one, %two, %sum<8>; mov.b32 %one, 0x3c003c00; mov.b32 %two, 0x40004000; "
     "mov.b32 %sum0, 0; wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 "
     "{%sum0,%sum1,%sum2,%sum3,%sum4,%sum5,%sum6,%sum7}, "
     "{%one,%one,%one,%one,%one,%one,%one,%one}, {%two,%two,%two,%two,%two,%two,%two,%two}, "
     "{%r1,%r1,%r1,%r1,%r1,%r1,%r1,%r1}; mov.b32 %r0, %sum5; }",
     'r',
     {F(0.5f)},
     F(32.5f)},
};

}  // namespace

std::span<const Case> MatrixCases() { return kCases; }

}  // namespace gpuloom::softgpu
