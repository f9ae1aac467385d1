// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint64_t kNan = 0x7fffffff;      // what arithmetic gives
constexpr uint64_t kSomeNan = 0xffc00123;  // what a program may bring
constexpr uint64_t kTiny = 1;              // the smallest subnormal
constexpr uint64_t kNegativeZero = 0x80000000;
constexpr uint64_t kThird = 0x3eaaaaab;      // 1/3 to nearest
constexpr uint64_t kThirdDown = 0x3eaaaaaa;  // toward zero
constexpr uint64_t kThird64 = 0x3fd5555555555555;

constexpr Case kCases[] = {
    // A summand far below the last bit of the other shows in which direction each mode rounds.
    {"add.f32 %r0, %r1, %r2;", 'r', {F(1.5f), F(2.25f)}, F(3.75f)},
    {"add.rn.f32 %r0, %r1, %r2;", 'r', {F(1.0f), F(0x1p-25f)}, F(1.0f)},
    {"add.rp.f32 %r0, %r1, %r2;", 'r', {F(1.0f), F(0x1p-25f)}, F(0x1.000002p0f)},
    {"add.rm.f32 %r0, %r1, %r2;", 'r', {F(-1.0f), F(-0x1p-25f)}, F(-0x1.000002p0f)},
    {"add.rz.f32 %r0, %r1, %r2;", 'r', {F(-1.0f), F(-0x1p-25f)}, F(-1.0f)},
    // Invalid operations and not-a-numbers all give the one not-a-number of single precision.
    {"add.f32 %r0, %r1, %r2;", 'r', {kSomeNan, F(1)}, kNan},
    {"add.f32 %r0, %r1, %r2;", 'r', {F(kInf), F(-kInf)}, kNan},
    // Into [0, 1]; then subnormal operands and results with .ftz and without.
    {"add.sat.f32 %r0, %r1, %r2;", 'r', {F(1.5f), F(2.25f)}, F(1.0f)},
    {"add.sat.f32 %r0, %r1, %r2;", 'r', {kSomeNan, F(2.25f)}, 0},
    {"add.ftz.f32 %r0, %r1, %r2;", 'r', {kTiny, kTiny}, 0},
    {"add.f32 %r0, %r1, %r2;", 'r', {kTiny, kTiny}, 2},
    {"add.f32 %r0, %r1, 0f3F800000;", 'r', {F(1.5f)}, F(2.5f)},
    {"add.f64 %d0, %d1, %d2;", 'd', {D(1.5), D(2.25)}, D(3.75)},
    {"add.rz.f64 %d0, %d1, %d2;", 'd', {D(1.0), D(0x1.8p-53)}, D(1.0)},
    {"add.rp.f64 %d0, %d1, %d2;", 'd', {D(1.0), D(0x1p-60)}, D(0x1.0000000000001p0)},
    {"add.f64 %d0, %d1, 0d4000000000000000;", 'd', {D(1.5)}, D(3.5)},
    {"sub.f32 %r0, %r1, %r2;", 'r', {F(1.5f), F(2.25f)}, F(-0.75f)},
    // Rounded down, a difference of zero is negative.
    {"sub.rm.f32 %r0, %r1, %r2;", 'r', {F(1.0f), F(1.0f)}, kNegativeZero},
    {"sub.ftz.sat.f32 %r0, %r1, %r2;", 'r', {F(1.5f), F(2.25f)}, 0},
    {"sub.f64 %d0, %d1, %d2;", 'd', {D(1.5), D(2.25)}, D(-0.75)},
    {"sub.rz.f64 %d0, %d1, %d2;", 'd', {D(1.0), D(0x1p-60)}, D(0x1.fffffffffffffp-1)},
    {"mul.f32 %r0, %r1, %r2;", 'r', {F(1.5f), F(-2.0f)}, F(-3.0f)},
    // The exact product lies between two neighbors: one mode gives the lower one, the other the
    // upper one.
    {"mul.rz.f32 %r0, %r1, %r2;", 'r', {F(0x1.000002p0f), F(0x1.000002p0f)}, F(0x1.000004p0f)},
    {"mul.rp.f32 %r0, %r1, %r2;", 'r', {F(0x1.000002p0f), F(0x1.000002p0f)}, F(0x1.000006p0f)},
    {"mul.ftz.f32 %r0, %r1, %r2;", 'r', {F(0x1p-100f), F(-0x1p-30f)}, kNegativeZero},
    {"mul.sat.f32 %r0, %r1, %r2;", 'r', {F(0.5f), F(0.5f)}, F(0.25f)},
    {"mul.f32 %r0, %r1, %r2;", 'r', {F(kInf), F(0)}, kNan},
    {"mul.f64 %d0, %d1, %d2;", 'd', {D(1.5), D(-2.0)}, D(-3.0)},
    {"mul.rm.f64 %d0, %d1, %d2;",
     'd',
     {D(0x1.0000000000001p0), D(-0x1.0000000000001p0)},
     D(-0x1.0000000000003p0)},
    // The rest that only a fused product keeps.
    {"fma.rn.f32 %r0, %r1, %r2, %r3;",
     'r',
     {F(0x1.000002p0f), F(0x1.000002p0f), F(-0x1.000004p0f)},
     F(0x1p-46f)},
    {"fma.rz.f32 %r0, %r1, %r2, %r3;", 'r', {F(1), F(1), F(-0x1p-30f)}, F(0x1.fffffep-1f)},
    {"fma.rm.f32 %r0, %r1, %r2, %r3;", 'r', {F(1), F(1), F(0x1p-30f)}, F(1)},
    {"fma.rp.f32 %r0, %r1, %r2, %r3;", 'r', {F(1), F(1), F(0x1p-30f)}, F(0x1.000002p0f)},
    {"fma.rn.ftz.f32 %r0, %r1, %r2, %r3;", 'r', {F(2), kTiny, F(0)}, 0},
    {"fma.rn.sat.f32 %r0, %r1, %r2, %r3;", 'r', {F(2), F(3), F(4)}, F(1)},
    {"fma.rn.f32 %r0, %r1, %r2, %r3;", 'r', {F(kInf), F(0), F(4)}, kNan},
    {"fma.rn.f64 %d0, %d1, %d2, %d3;", 'd', {D(3), D(4), D(5)}, D(17)},
    {"fma.rz.f64 %d0, %d1, %d2, %d3;", 'd', {D(1), D(1), D(-0x1p-70)}, D(0x1.fffffffffffffp-1)},
    {"mad.rn.f32 %r0, %r1, %r2, %r3;", 'r', {F(3), F(4), F(5)}, F(17)},
    {"mad.rn.f64 %d0, %d1, %d2, %d3;", 'd', {D(3), D(4), D(5)}, D(17)},
    // 1/3 lies between kThirdDown and kThird.
    {"div.rn.f32 %r0, %r1, %r2;", 'r', {F(1), F(3)}, kThird},
    {"div.rz.f32 %r0, %r1, %r2;", 'r', {F(1), F(3)}, kThirdDown},
    {"div.rm.f32 %r0, %r1, %r2;", 'r', {F(-1), F(3)}, kThird | kNegativeZero},
    {"div.rp.f32 %r0, %r1, %r2;", 'r', {F(-1), F(3)}, kThirdDown | kNegativeZero},
    {"div.rn.ftz.f32 %r0, %r1, %r2;", 'r', {kTiny, F(1)}, 0},
    {"div.rn.f32 %r0, %r1, %r2;", 'r', {F(1), F(0)}, F(kInf)},
    {"div.rn.f32 %r0, %r1, %r2;", 'r', {F(0), F(0)}, kNan},
    // Approximations are tested where they are exact.
    {"div.full.f32 %r0, %r1, %r2;", 'r', {F(6), F(2)}, F(3)},
    {"div.approx.f32 %r0, %r1, %r2;", 'r', {F(6), F(2)}, F(3)},
    {"div.approx.ftz.f32 %r0, %r1, %r2;", 'r', {F(8), F(2)}, F(4)},
    {"div.rn.f64 %d0, %d1, %d2;", 'd', {D(1), D(3)}, kThird64},
    {"div.rp.f64 %d0, %d1, %d2;", 'd', {D(1), D(3)}, kThird64 + 1},
    {"rcp.rn.f32 %r0, %r1;", 'r', {F(3)}, kThird},
    {"rcp.rz.f32 %r0, %r1;", 'r', {F(3)}, kThirdDown},
    {"rcp.approx.f32 %r0, %r1;", 'r', {F(4)}, F(0.25f)},
    {"rcp.approx.ftz.f32 %r0, %r1;", 'r', {kTiny}, F(kInf)},
    {"rcp.rn.f64 %d0, %d1;", 'd', {D(3)}, kThird64},
    {"rcp.rm.f64 %d0, %d1;", 'd', {D(3)}, kThird64},
    {"rcp.approx.ftz.f64 %d0, %d1;", 'd', {D(4)}, D(0.25)},
    {"sqrt.rn.f32 %r0, %r1;", 'r', {F(2)}, 0x3fb504f3},
    {"sqrt.rp.f32 %r0, %r1;", 'r', {F(2)}, 0x3fb504f4},
    {"sqrt.rn.f32 %r0, %r1;", 'r', {F(-1)}, kNan},
    {"sqrt.approx.f32 %r0, %r1;", 'r', {F(4)}, F(2)},
    {"sqrt.approx.ftz.f32 %r0, %r1;", 'r', {kTiny}, 0},
    {"sqrt.rn.f64 %d0, %d1;", 'd', {D(2)}, 0x3ff6a09e667f3bcd},
    {"sqrt.rz.f64 %d0, %d1;", 'd', {D(2)}, 0x3ff6a09e667f3bcc},
    {"rsqrt.approx.f32 %r0, %r1;", 'r', {F(4)}, F(0.5f)},
    {"rsqrt.approx.ftz.f32 %r0, %r1;", 'r', {F(0)}, F(kInf)},
    {"rsqrt.approx.f64 %d0, %d1;", 'd', {D(4)}, D(0.5)},
    {"rsqrt.approx.f64 %d0, %d1;", 'd', {D(0x1p-300)}, D(0x1p150)},
    {"rsqrt.approx.ftz.f64 %d0, %d1;", 'd', {D(16)}, D(0.25)},
    {"sin.approx.f32 %r0, %r1;", 'r', {F(0)}, F(0)},
    {"cos.approx.f32 %r0, %r1;", 'r', {F(0)}, F(1)},
    {"cos.approx.ftz.f32 %r0, %r1;", 'r', {kTiny}, F(1)},
    {"sin.approx.ftz.f32 %r0, %r1;", 'r', {kTiny}, F(0)},
    {"lg2.approx.f32 %r0, %r1;", 'r', {F(8)}, F(3)},
    {"lg2.approx.ftz.f32 %r0, %r1;", 'r', {kTiny}, F(-kInf)},
    {"ex2.approx.f32 %r0, %r1;", 'r', {F(3)}, F(8)},
    {"ex2.approx.ftz.f32 %r0, %r1;", 'r', {F(-140)}, 0},
    {"tanh.approx.f32 %r0, %r1;", 'r', {F(0)}, F(0)},
    {"tanh.approx.f32 %r0, %r1;", 'r', {F(20)}, F(1)},
    {"abs.f32 %r0, %r1;", 'r', {F(-1.5f)}, F(1.5f)},
    {"abs.ftz.f32 %r0, %r1;", 'r', {0x80000001}, 0},
    {"abs.f64 %d0, %d1;", 'd', {D(-1.5)}, D(1.5)},
    {"neg.f32 %r0, %r1;", 'r', {F(1.5f)}, F(-1.5f)},
    {"neg.ftz.f32 %r0, %r1;", 'r', {kTiny}, kNegativeZero},
    {"neg.f64 %d0, %d1;", 'd', {D(-1.5)}, D(1.5)},
    // Between a number and a not-a-number the number, unless .NaN is given; between two zeros by
    // their sign.
    {"min.f32 %r0, %r1, %r2;", 'r', {F(1), F(-2)}, F(-2)},
    {"min.f32 %r0, %r1, %r2;", 'r', {kSomeNan, F(-2)}, F(-2)},
    {"min.NaN.f32 %r0, %r1, %r2;", 'r', {kSomeNan, F(-2)}, kNan},
    {"min.f32 %r0, %r1, %r2;", 'r', {0, kNegativeZero}, kNegativeZero},
    {"min.ftz.f32 %r0, %r1, %r2;", 'r', {kTiny, F(1)}, 0},
    // The sign of the product with the smaller, or larger, magnitude.
    {"min.xorsign.abs.f32 %r0, %r1, %r2;", 'r', {F(-1), F(2)}, F(-1)},
    {"min.f64 %d0, %d1, %d2;", 'd', {D(1), D(-2)}, D(-2)},
    {"max.f32 %r0, %r1, %r2;", 'r', {F(1), F(-2)}, F(1)},
    {"max.f32 %r0, %r1, %r2;", 'r', {kSomeNan, kSomeNan}, kNan},
    {"max.f32 %r0, %r1, %r2;", 'r', {kNegativeZero, 0}, 0},
    {"max.NaN.f32 %r0, %r1, %r2;", 'r', {F(1), kSomeNan}, kNan},
    {"max.xorsign.abs.f32 %r0, %r1, %r2;", 'r', {F(-1), F(-2)}, F(2)},
    {"max.f64 %d0, %d1, %d2;", 'd', {D(1), D(-2)}, D(1)},
    // Not-a-numbers: single precision has one only, double precision keeps the bits that it was
    // given.
    {"neg.f32 %r0, %r1;", 'r', {kSomeNan}, kNan},
    {"abs.f32 %r0, %r1;", 'r', {kSomeNan}, kNan},
    {"neg.f64 %d0, %d1;", 'd', {0xfff8000000001234}, 0xfff8000000001234},
    {"min.f64 %d0, %d1, %d2;", 'd', {0x7ff8000000000001, 0xfff8000000001234}, 0xfff8000000001234},
    // The lower half of a double is cut off.
    {"rcp.approx.ftz.f64 %d0, %d1;", 'd', {D(3)}, 0x3fd5555500000000},
    {"rsqrt.approx.ftz.f64 %d0, %d1;", 'd', {D(3)}, 0x3fe279a700000000},
    // A divisor above 2^126, where only div.approx gives zero.
    {"div.approx.f32 %r0, %r1, %r2;", 'r', {F(1), F(0x1p127f)}, 0},
    {"div.full.f32 %r0, %r1, %r2;", 'r', {F(1), F(0x1p127f)}, 0x400000},
    {"sin.approx.f32 %r0, %r1;", 'r', {F(kInf)}, kNan},
    {"lg2.approx.f32 %r0, %r1;", 'r', {F(-1)}, kNan},
    {"rsqrt.approx.f32 %r0, %r1;", 'r', {F(-0.0f)}, F(-kInf)},
    // An invalid operation in double precision: not-a-number with the sign bit, as from the
    // processor.
    {"fma.rn.f64 %d0, %d1, %d2, %d3;", 'd', {0x7ff0000000000000, 0, D(1)}, 0xfff8000000000000},
    // The sign of the first operand, the magnitude of the second.
    {"copysign.f32 %r0, %r1, %r2;", 'r', {F(-1), F(2)}, F(-2)},
    {"copysign.f64 %d0, %d1, %d2;", 'd', {D(1), D(-2)}, D(2)},
    {"testp.finite.f32 %p0, %r1;", 'p', {F(kInf)}, 0},
    {"testp.infinite.f32 %p0, %r1;", 'p', {F(-kInf)}, 1},
    {"testp.number.f32 %p0, %r1;", 'p', {kSomeNan}, 0},
    {"testp.notanumber.f32 %p0, %r1;", 'p', {kSomeNan}, 1},
    {"testp.normal.f32 %p0, %r1;", 'p', {kTiny}, 0},
    {"testp.subnormal.f32 %p0, %r1;", 'p', {kTiny}, 1},
    {"testp.finite.f64 %p0, %d1;", 'p', {D(1)}, 1},
    {"testp.subnormal.f64 %p0, %d1;", 'p', {1}, 1},
};

}  // namespace

std::span<const Case> FloatCases() { return kCases; }

}  // namespace gpuloom::softgpu
