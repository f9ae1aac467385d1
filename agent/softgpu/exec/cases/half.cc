// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

// Half precision: 0x3c00 is 1, 0x4000 2, 0x4200 3, 0x3800 0.5, 0x7c00 infinity, 0x7fff not a
// number. bfloat16: 0x3f80 is 1, 0x4000 2, 0x4040 3.
constexpr Case kCases[] = {
    {"add.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x4000}, 0x4200},
    // Half a unit of the last place: to the even one, down and up.
    {"add.rn.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x1000}, 0x3c00},
    {"add.rn.f16 %h0, %h1, %h2;", 'h', {0x3c01, 0x1000}, 0x3c02},
    // Too large: infinity.
    {"add.f16 %h0, %h1, %h2;", 'h', {0x7bff, 0x7bff}, 0x7c00},
    {"add.ftz.f16 %h0, %h1, %h2;", 'h', {1, 1}, 0},
    {"add.f16 %h0, %h1, %h2;", 'h', {1, 1}, 2},
    {"add.sat.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x4000}, 0x3c00},
    {"add.f16 %h0, %h1, %h2;", 'h', {0x7c00, 0xfc00}, 0x7fff},
    {"add.f16x2 %r0, %r1, %r2;", 'r', {0x3c003800, 0x40003800}, 0x42003c00},
    {"add.bf16 %h0, %h1, %h2;", 'h', {0x3f80, 0x4000}, 0x4040},
    {"add.bf16x2 %r0, %r1, %r2;", 'r', {0x3f803f80, 0x40003f80}, 0x40404000},
    {"sub.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0x4000}, 0xbc00},
    {"sub.f16x2 %r0, %r1, %r2;", 'r', {0x42004200, 0x3c004000}, 0x40003c00},
    {"sub.bf16 %h0, %h1, %h2;", 'h', {0x4040, 0x3f80}, 0x4000},
    {"sub.bf16x2 %r0, %r1, %r2;", 'r', {0x40404040, 0x3f804000}, 0x40003f80},
    {"mul.f16 %h0, %h1, %h2;", 'h', {0x4200, 0x4000}, 0x4600},
    {"mul.f16x2 %r0, %r1, %r2;", 'r', {0x42003c00, 0x40003800}, 0x46003800},
    {"mul.bf16 %h0, %h1, %h2;", 'h', {0x4040, 0x4000}, 0x40c0},
    {"mul.bf16x2 %r0, %r1, %r2;", 'r', {0x40403f80, 0x40004000}, 0x40c04000},
    {"fma.rn.f16 %h0, %h1, %h2, %h3;", 'h', {0x4200, 0x4000, 0x3c00}, 0x4700},
    // The rest that rounding the product first would lose.
    {"fma.rn.f16 %h0, %h1, %h2, %h3;", 'h', {0x3c01, 0x3c01, 0xbc02}, 0x0010},
    {"fma.rn.sat.f16 %h0, %h1, %h2, %h3;", 'h', {0x4200, 0x4000, 0x3c00}, 0x3c00},
    {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;", 'h', {0x4200, 0xc000, 0x3c00}, 0},
    {"fma.rn.f16x2 %r0, %r1, %r2, %r3;", 'r', {0x42003c00, 0x40003c00, 0x3c003c00}, 0x47004000},
    {"fma.rn.bf16 %h0, %h1, %h2, %h3;", 'h', {0x4040, 0x4000, 0x3f80}, 0x40e0},
    {"fma.rn.relu.bf16x2 %r0, %r1, %r2, %r3;",
     'r',
     {0x40403f80, 0x4000bf80, 0x3f800000},
     0x40e00000},
    {"neg.f16 %h0, %h1;", 'h', {0x3c00}, 0xbc00},
    {"neg.f16x2 %r0, %r1;", 'r', {0x3c00bc00}, 0xbc003c00},
    {"neg.bf16 %h0, %h1;", 'h', {0x3f80}, 0xbf80},
    {"neg.bf16x2 %r0, %r1;", 'r', {0x3f80bf80}, 0xbf803f80},
    {"abs.f16 %h0, %h1;", 'h', {0xbc00}, 0x3c00},
    {"abs.f16x2 %r0, %r1;", 'r', {0x3c00bc00}, 0x3c003c00},
    {"abs.bf16 %h0, %h1;", 'h', {0xbf80}, 0x3f80},
    {"abs.bf16x2 %r0, %r1;", 'r', {0x3f80bf80}, 0x3f803f80},
    {"min.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0xc000}, 0xc000},
    {"min.f16 %h0, %h1, %h2;", 'h', {0x7e00, 0xc000}, 0xc000},
    {"min.NaN.f16 %h0, %h1, %h2;", 'h', {0x7e00, 0xc000}, 0x7fff},
    {"min.f16x2 %r0, %r1, %r2;", 'r', {0x3c004200, 0xc0004000}, 0xc0004000},
    {"min.bf16 %h0, %h1, %h2;", 'h', {0x3f80, 0x4000}, 0x3f80},
    {"min.xorsign.abs.bf16 %h0, %h1, %h2;", 'h', {0xbf80, 0x4000}, 0xbf80},
    {"min.bf16x2 %r0, %r1, %r2;", 'r', {0x3f804000, 0x40003f80}, 0x3f803f80},
    {"max.f16 %h0, %h1, %h2;", 'h', {0x3c00, 0xc000}, 0x3c00},
    {"max.xorsign.abs.f16 %h0, %h1, %h2;", 'h', {0xbc00, 0x4000}, 0xc000},
    {"max.f16x2 %r0, %r1, %r2;", 'r', {0x3c004200, 0xc0004000}, 0x3c004200},
    {"max.NaN.bf16 %h0, %h1, %h2;", 'h', {0x3f80, 0x7fc0}, 0x7fff},
    {"max.bf16x2 %r0, %r1, %r2;", 'r', {0x3f804000, 0x40003f80}, 0x40004000},
    // Not-a-numbers become the canonical one; relu keeps it, saturation makes it 0.
    {"neg.f16 %h0, %h1;", 'h', {0xfe01}, 0x7fff},
    {"abs.f16 %h0, %h1;", 'h', {0xfe01}, 0x7fff},
    {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;", 'h', {0xfe01, 0x3c00, 0x3c00}, 0x7fff},
    {"fma.rn.sat.f16 %h0, %h1, %h2, %h3;", 'h', {0xfe01, 0x3c00, 0x3c00}, 0},
    {"add.bf16 %h0, %h1, %h2;", 'h', {1, 1}, 2},
    // Approximations where they are exact, or saturated.
    {"ex2.approx.f16 %h0, %h1;", 'h', {0x4200}, 0x4800},
    {"ex2.approx.f16x2 %r0, %r1;", 'r', {0x42003c00}, 0x48004000},
    {"ex2.approx.ftz.bf16 %h0, %h1;", 'h', {0x4040}, 0x4100},
    {"tanh.approx.f16 %h0, %h1;", 'h', {0}, 0},
    {"tanh.approx.f16x2 %r0, %r1;", 'r', {0x4c004c00}, 0x3c003c00},
    {"tanh.approx.bf16 %h0, %h1;", 'h', {0x41a0}, 0x3f80},
};

}  // namespace

std::span<const Case> HalfCases() { return kCases; }

}  // namespace gpuloom::softgpu
