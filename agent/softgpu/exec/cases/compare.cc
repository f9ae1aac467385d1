// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kNan = 0x7fc00000, kNan64 = 0x7ff8000000000000, kOnes32 = 0xffffffff;

constexpr Case kCases[] = {
    // 0xffff and the like are large or -1.
    {"setp.eq.b16 %p0, %h1, %h2;", 'p', {5, 5}, 1},
    {"setp.ne.b32 %p0, %r1, %r2;", 'p', {5, 5}, 0},
    {"setp.eq.b64 %p0, %d1, %d2;", 'p', {uint64_t{1} << 40, 0}, 0},
    {"setp.lt.u16 %p0, %h1, %h2;", 'p', {5, 0xffff}, 1},
    {"setp.lt.s16 %p0, %h1, %h2;", 'p', {5, 0xffff}, 0},
    {"setp.le.u32 %p0, %r1, %r2;", 'p', {5, 5}, 1},
    {"setp.gt.u32 %p0, %r1, %r2;", 'p', {kOnes32, 5}, 1},
    {"setp.ge.u32 %p0, %r1, %r2;", 'p', {4, 5}, 0},
    // Other names for the unsigned comparisons.
    {"setp.lo.u32 %p0, %r1, %r2;", 'p', {4, 5}, 1},
    {"setp.ls.u32 %p0, %r1, %r2;", 'p', {6, 5}, 0},
    {"setp.hi.u32 %p0, %r1, %r2;", 'p', {6, 5}, 1},
    {"setp.hs.u32 %p0, %r1, %r2;", 'p', {5, 5}, 1},
    {"setp.gt.s32 %p0, %r1, %r2;", 'p', {kOnes32, 5}, 0},
    {"setp.lt.u64 %p0, %d1, %d2;", 'p', {1, ~uint64_t{0}}, 1},
    {"setp.lt.s64 %p0, %d1, %d2;", 'p', {1, ~uint64_t{0}}, 0},
    {"setp.ne.s32 %p0, %r1, 7;", 'p', {7}, 0},
    // Zeros of both signs are equal.
    {"setp.eq.f32 %p0, %r1, %r2;", 'p', {F(0.0f), F(-0.0f)}, 1},
    // Ordered comparisons of a not-a-number are false, ne among them; the forms that end in u are
    // true.
    {"setp.ne.f32 %p0, %r1, %r2;", 'p', {kNan, F(1)}, 0},
    {"setp.lt.f32 %p0, %r1, %r2;", 'p', {F(1), F(2)}, 1},
    {"setp.le.f32 %p0, %r1, %r2;", 'p', {kNan, F(2)}, 0},
    {"setp.gt.f32 %p0, %r1, %r2;", 'p', {F(1), F(2)}, 0},
    {"setp.ge.f32 %p0, %r1, %r2;", 'p', {F(2), F(2)}, 1},
    {"setp.equ.f32 %p0, %r1, %r2;", 'p', {kNan, F(2)}, 1},
    {"setp.neu.f32 %p0, %r1, %r2;", 'p', {kNan, kNan}, 1},
    {"setp.ltu.f32 %p0, %r1, %r2;", 'p', {F(3), F(2)}, 0},
    {"setp.leu.f32 %p0, %r1, %r2;", 'p', {kNan, F(2)}, 1},
    {"setp.gtu.f32 %p0, %r1, %r2;", 'p', {F(3), F(2)}, 1},
    {"setp.geu.f32 %p0, %r1, %r2;", 'p', {F(1), F(2)}, 0},
    {"setp.num.f32 %p0, %r1, %r2;", 'p', {F(1), kNan}, 0},
    {"setp.nan.f32 %p0, %r1, %r2;", 'p', {F(1), kNan}, 1},
    // A subnormal number equals zero only with .ftz.
    {"setp.eq.ftz.f32 %p0, %r1, %r2;", 'p', {1, 0}, 1},
    {"setp.eq.f32 %p0, %r1, %r2;", 'p', {1, 0}, 0},
    {"setp.lt.f64 %p0, %d1, %d2;", 'p', {D(1), D(2)}, 1},
    {"setp.neu.f64 %p0, %d1, %d2;", 'p', {kNan64, D(2)}, 1},
    {"setp.lt.f16 %p0, %h1, %h2;", 'p', {0xbc00, 0x3c00}, 1},
    {"setp.gt.bf16 %p0, %h1, %h2;", 'p', {0x4000, 0x3f80}, 1},
    // Each half has a predicate of its own.
    {"setp.lt.f16x2 %p10|%p0, %r1, %r2;", 'p', {0x3c004000, 0x40003c00}, 1},
    {"setp.lt.f16x2 %p0|%p10, %r1, %r2;", 'p', {0x3c004000, 0x40003c00}, 0},
    {"setp.ge.bf16x2 %p0|%p10, %r1, %r2;", 'p', {0x3f804000, 0x40003f80}, 1},
    // The comparison and a third operand; then the opposite of the comparison, too.
    {"setp.lt.and.s32 %p0, %r1, %r2, %p3;", 'p', {1, 2, 1}, 1},
    {"setp.lt.and.s32 %p0, %r1, %r2, !%p3;", 'p', {1, 2, 1}, 0},
    {"setp.lt.or.s32 %p0, %r1, %r2, %p3;", 'p', {3, 2, 1}, 1},
    {"setp.lt.xor.s32 %p0, %r1, %r2, %p3;", 'p', {1, 2, 1}, 0},
    {"setp.lt.s32 %p10|%p0, %r1, %r2;", 'p', {1, 2}, 0},
    {"setp.lt.and.s32 %p10|%p0, %r1, %r2, %p3;", 'p', {3, 2, 1}, 1},
    // All ones or 1.0 instead of a predicate.
    {"set.lt.u32.s32 %r0, %r1, %r2;", 'r', {kOnes32, 2}, kOnes32},
    {"set.lt.s32.u32 %r0, %r1, %r2;", 'r', {kOnes32, 2}, 0},
    {"set.lt.f32.s32 %r0, %r1, %r2;", 'r', {kOnes32, 2}, F(1)},
    {"set.gt.u32.f32 %r0, %r1, %r2;", 'r', {F(3), F(2)}, kOnes32},
    {"set.eq.ftz.f32.f32 %r0, %r1, %r2;", 'r', {1, 0}, F(1)},
    {"set.gt.u32.f64 %r0, %d1, %d2;", 'r', {D(3), D(2)}, kOnes32},
    {"set.ne.u32.b64 %r0, %d1, %d2;", 'r', {uint64_t{1} << 40, 0}, kOnes32},
    {"set.lt.and.u32.s32 %r0, %r1, %r2, %p3;", 'r', {1, 2, 0}, 0},
    {"set.lt.f16.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x4000}, 0x3c00},
    {"set.lt.u16.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x4000}, 0xffff},
    {"set.lt.bf16.bf16 %h0, %h1, %h2;", 'h', {0x3f80, 0x4000}, 0x3f80},
    // Selected by a predicate.
    {"selp.b16 %h0, %h1, %h2, %p3;", 'h', {1, 2, 1}, 1},
    {"selp.b32 %r0, %r1, %r2, %p3;", 'r', {1, 2, 0}, 2},
    {"selp.s32 %r0, -1, 0, %p3;", 'r', {1, 2, 1}, kOnes32},
    {"selp.f32 %r0, 0f3F800000, %r2, %p3;", 'r', {1, 2, 1}, F(1)},
    {"selp.b64 %d0, %d1, %d2, %p3;", 'd', {1, 2, 0}, 2},
    {"selp.f64 %d0, %d1, %d2, %p3;", 'd', {D(1), D(2), 1}, D(1)},
    // Selected by the sign of the third operand: negative zero counts as zero, a not-a-number as
    // negative.
    {"slct.b16.s32 %h0, %h1, %h2, %r3;", 'h', {1, 2, 0}, 1},
    {"slct.u32.s32 %r0, %r1, %r2, %r3;", 'r', {1, 2, kOnes32}, 2},
    {"slct.b64.s32 %d0, %d1, %d2, %r3;", 'd', {1, 2, 5}, 1},
    {"slct.f32.f32 %r0, %r1, %r2, %r3;", 'r', {F(1), F(2), F(-0.5f)}, F(2)},
    {"slct.u32.f32 %r0, %r1, %r2, %r3;", 'r', {1, 2, F(-0.0f)}, 1},
    {"slct.u32.f32 %r0, %r1, %r2, %r3;", 'r', {1, 2, kNan}, 2},
    {"slct.ftz.u32.f32 %r0, %r1, %r2, %r3;", 'r', {1, 2, 0x80000001}, 1},
    // A one in each half in which the comparison holds.
    {"set.lt.f16x2.f16x2 %r0, %r1, %r2;", 'r', {0x40003c00, 0x40004000}, 0x00003c00},
    {"set.ge.bf16x2.bf16x2 %r0, %r1, %r2;", 'r', {0x40003f80, 0x40004000}, 0x3f800000},
    {"set.lt.u32.f16x2 %r0, %r1, %r2;", 'r', {0x40003c00, 0x40004000}, 0x0000ffff},
};

}  // namespace

std::span<const Case> CompareCases() { return kCases; }

}  // namespace gpuloom::softgpu
