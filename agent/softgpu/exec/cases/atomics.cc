// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kOnes32 = 0xffffffff;

uint64_t Lane(uint32_t lane) { return lane; }

// %d9 is the lane's own memory, %d8 that of all 32.
constexpr Case kCases[] = {
    // The value that atom returns, and the one that it leaves in memory; red only leaves one.
    {"st.global.u32 [%d9], %r1; atom.global.add.u32 %r0, [%d9], %r2;", 'r', {5, 3}, 5},
    {"st.global.u32 [%d9], %r1; atom.global.add.u32 %r10, [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {5, 3},
     8},
    {"st.global.u32 [%d9], %r1; red.global.add.s32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {5, kOnes32},
     4},
    {"st.global.u64 [%d9], %d1; red.global.add.u64 [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {kOnes32, 1},
     0x100000000},
    {"st.global.f32 [%d9], %r1; atom.global.add.f32 %r10, [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {F(1.5f), F(2)},
     F(3.5f)},
    // Subnormal sums vanish in global memory, and stay in shared memory.
    {"st.global.u32 [%d9], %r1; red.global.add.f32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {1, 1},
     0},
    {"mov.u32 %r10, shared; shl.b32 %r11, %r9, 2; add.u32 %r10, %r10, %r11; st.shared.u32 [%r10], "
     "%r1; "
     "atom.shared.add.f32 %r12, [%r10], %r1; ld.shared.u32 %r0, [%r10];",
     'r',
     {1},
     2},
    {"st.global.f64 [%d9], %d1; red.global.add.f64 [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {D(1.5), D(2)},
     D(3.5)},
    // Halves by themselves.
    {"st.global.u32 [%d9], %r1; red.global.add.noftz.f16x2 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {0x3c003c00, 0x40003c00},
     0x42004000},
    {"st.global.u32 [%d9], %r1; red.global.add.noftz.bf16x2 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {0x3f803f80, 0x40003f80},
     0x40404000},
    {"st.global.u16 [%d9], %h1; atom.global.add.noftz.f16 %h0, [%d9], %h2; ld.global.u16 %h0, "
     "[%d9];",
     'h',
     {0x3c00, 0x4000},
     0x4200},
    {"st.global.u16 [%d9], %h1; atom.global.add.noftz.bf16 %h0, [%d9], %h2; ld.global.u16 %h0, "
     "[%d9];",
     'h',
     {0x3f80, 0x4000},
     0x4040},
    {"st.global.u32 [%d9], %r1; red.global.min.u32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {kOnes32, 3},
     3},
    {"st.global.u32 [%d9], %r1; red.global.min.s32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {kOnes32, 3},
     kOnes32},
    {"st.global.u64 [%d9], %d1; red.global.min.s64 [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {~uint64_t{0}, 3},
     ~uint64_t{0}},
    {"st.global.u64 [%d9], %d1; red.global.max.u64 [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {1, 3},
     3},
    {"st.global.u32 [%d9], %r1; red.global.max.s32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {kOnes32, 3},
     3},
    // inc and dec at their ends and between them.
    {"st.global.u32 [%d9], %r1; atom.global.inc.u32 %r0, [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {3, 3},
     0},
    {"st.global.u32 [%d9], %r1; red.global.inc.u32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {2, 3},
     3},
    {"st.global.u32 [%d9], %r1; red.global.dec.u32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {0, 3},
     3},
    {"st.global.u32 [%d9], %r1; red.global.dec.u32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {2, 3},
     1},
    {"st.global.u32 [%d9], %r1; red.global.and.b32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {6, 3},
     2},
    {"st.global.u32 [%d9], %r1; red.global.or.b32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {6, 3},
     7},
    {"st.global.u32 [%d9], %r1; red.global.xor.b32 [%d9], %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {6, 3},
     5},
    {"st.global.u64 [%d9], %d1; atom.global.and.b64 %d10, [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {6, 3},
     2},
    {"st.global.u64 [%d9], %d1; atom.global.or.b64 %d10, [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {6, 3},
     7},
    {"st.global.u32 [%d9], %r1; atom.global.exch.b32 %r0, [%d9], %r2;", 'r', {6, 3}, 6},
    {"st.global.u64 [%d9], %d1; atom.global.exch.b64 %d10, [%d9], %d2; ld.global.u64 %d0, [%d9];",
     'd',
     {6, 3},
     3},
    {"st.global.u32 [%d9], %r1; atom.global.cas.b32 %r10, [%d9], %r1, %r2; ld.global.u32 %r0, "
     "[%d9];",
     'r',
     {6, 3},
     3},
    // A comparison that fails changes nothing.
    {"st.global.u32 [%d9], %r1; atom.global.cas.b32 %r10, [%d9], 5, %r2; ld.global.u32 %r0, [%d9];",
     'r',
     {6, 3},
     6},
    {"st.global.u64 [%d9], %d1; atom.global.cas.b64 %d0, [%d9], %d1, %d2;", 'd', {6, 3}, 6},
    {"st.global.u16 [%d9+2], %h1; atom.global.cas.b16 %h10, [%d9+2], %h1, %h2; ld.global.u16 %h0, "
     "[%d9+2];",
     'h',
     {6, 3},
     3},
    // All lanes on one word.
    {"st.shared.u32 [shared], 0; bar.sync 0; atom.shared.add.u32 %r10, [shared], 2; bar.sync 0; "
     "ld.shared.u32 %r0, [shared];",
     'r',
     {},
     64},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; st.u32 [%d11], 0; bar.sync 0; "
     "red.add.u32 [%d11], 3; bar.sync 0; ld.u32 %r0, [%d11];",
     'r',
     {},
     96},
    {"red.shared.max.u32 [shared], %r9; bar.sync 0; ld.shared.u32 %r0, [shared]; min.u32 %r0, %r0, "
     "31;",
     'r',
     {},
     31},
    {"atom.global.add.u32 %r10, [%d8], 1; bar.sync 0; ld.global.u32 %r0, [%d8];", 'r', {}, 32},
    {"red.relaxed.gpu.global.add.f32 [%d8], 0f3F800000; bar.sync 0; ld.global.u32 %r0, [%d8];",
     'r',
     {},
     F(32)},
    {"atom.acq_rel.sys.global.or.b32 %r10, [%d8], 1; bar.sync 0; ld.global.u32 %r0, [%d8];",
     'r',
     {},
     1},
    {"atom.add.u64 %d10, [%d9], %d1; ld.u64 %d0, [%d9];", 'd', {7}, 7},
    // Each lane gets another ticket: their sum is 0 + 1 + … + 31.
    {"atom.global.add.u32 %r10, [%d8], 1; red.global.add.u32 [%d8+4], %r10; bar.sync 0; "
     "ld.global.u32 %r0, [%d8+4];",
     'r',
     {},
     496},
    {"add.u64 %d10, %d9, 4; red.global.add.u32 [%d10], %r9; ld.global.u32 %r0, [%d9+4];",
     'r',
     {},
     0,
     Lane},
    // Vectors, element by element.
    {"st.global.v4.f32 [%d9], {0f3F800000, 0f40000000, 0f40400000, 0f40800000}; "
     "{ .reg .f32 %v<8>; mov.f32 %v0, 0f41200000; "
     "atom.global.add.v4.f32 {%v4, %v5, %v6, %v7}, [%d9], {%v0, %v0, %v0, %v0}; "
     "ld.global.f32 %v1, [%d9+8]; add.f32 %v1, %v1, %v7; mov.b32 %r0, %v1; }",
     'r',
     {},
     F(17)},
    {"{ .reg .f32 %v<2>; mov.f32 %v0, 0f3F800000; mov.f32 %v1, 0f40000000; "
     "red.global.v2.f32.add [%d8], {%v0, %v1}; bar.sync 0; ld.volatile.global.v2.u32 {%r10, %r11}, "
     "[%d8]; add.u32 %r0, %r10, %r11; }",
     'r',
     {},
     F(32) + F(64)},
    // 1 + 2 and 2 + 3 in each half; then the smaller ones.
    {"st.global.v2.u32 [%d9], {%r1, %r1}; red.global.v2.f16x2.add.noftz [%d9], {%r2, %r2}; "
     "ld.global.u32 %r0, [%d9+4];",
     'r',
     {0x40003c00, 0x42004000},
     0x45004200},
    {"st.global.v4.u32 [%d9], {%r1, %r1, %r1, %r1}; "
     "atom.global.v4.bf16x2.min.noftz {%r10, %r11, %r12, %r13}, [%d9], {%r2, %r2, %r2, %r2}; "
     "ld.global.u32 %r0, [%d9+12];",
     'r',
     {0x40003f80, 0x3f804000},
     0x3f803f80},
    {"st.global.v2.u32 [%d9], {%r1, %r1}; red.global.v4.f16.max.noftz [%d9], {%h2, %h2, %h2, %h2}; "
     "ld.global.u32 %r0, [%d9];",
     'r',
     {0x40003c00, 0x3e00},
     0x40003e00},
};

}  // namespace

std::span<const Case> AtomicCases() { return kCases; }

}  // namespace gpuloom::softgpu
