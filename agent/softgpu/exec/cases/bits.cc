// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kOnes32 = 0xffffffff, kOnes64 = ~uint64_t{0};

constexpr Case kCases[] = {
    // Logic.
    {"and.b16 %h0, %h1, %h2;", 'h', {0xff0f, 0x0ff0}, 0x0f00},
    {"and.b32 %r0, %r1, %r2;", 'r', {0xff00ff0f, 0x0ff00ff0}, 0x0f000f00},
    {"and.b64 %d0, %d1, %d2;", 'd', {kOnes64, 0x123456789abcdef0}, 0x123456789abcdef0},
    {"and.pred %p0, %p1, %p2;", 'p', {1, 1}, 1},
    {"and.pred %p0, %p1, !%p2;", 'p', {1, 1}, 0},
    {"or.b16 %h0, %h1, %h2;", 'h', {0xff00, 0x000f}, 0xff0f},
    {"or.b32 %r0, %r1, %r2;", 'r', {0xff00, 0x000f}, 0xff0f},
    {"or.b64 %d0, %d1, %d2;", 'd', {0xff00000000000000, 0xf}, 0xff0000000000000f},
    {"or.pred %p0, %p1, %p2;", 'p', {0, 1}, 1},
    {"xor.b16 %h0, %h1, %h2;", 'h', {0xff00, 0x0ff0}, 0xf0f0},
    {"xor.b32 %r0, %r1, -1;", 'r', {0xff00}, 0xffff00ff},
    {"xor.b64 %d0, %d1, %d2;", 'd', {kOnes64, 1}, kOnes64 - 1},
    {"xor.pred %p0, %p1, %p2;", 'p', {1, 1}, 0},
    {"not.b16 %h0, %h1;", 'h', {0xff00}, 0x00ff},
    {"not.b32 %r0, %r1;", 'r', {0xff00}, 0xffff00ff},
    {"not.b64 %d0, %d1;", 'd', {1}, kOnes64 - 1},
    {"not.pred %p0, %p1;", 'p', {0}, 1},
    {"cnot.b16 %h0, %h1;", 'h', {0}, 1},
    {"cnot.b32 %r0, %r1;", 'r', {7}, 0},
    {"cnot.b64 %d0, %d1;", 'd', {0}, 1},
    // The tables are a ^ b ^ c, (a & b) | c, all three, and any of them.
    {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", 'r', {0xff00ff00, 0xf0f0f0f0, 0xcccccccc}, 0xc33cc33c},
    {"lop3.b32 %r0, %r1, %r2, %r3, 0xea;", 'r', {0xff00ff00, 0xf0f0f0f0, 0xcccccccc}, 0xfcccfccc},
    {"lop3.or.b32 %r10|%p0, %r1, %r2, %r3, 0x80, %p10;", 'p', {1, 1, 1}, 1},
    {"lop3.and.b32 %r0|%p10, %r1, %r2, %r3, 0xfe, %p1;", 'r', {1, 2, 4}, 7},
    {"lop3.and.b32 _|%p0, %r1, %r2, %r3, 0xfe, !%p1;", 'p', {0, 2, 4}, 1},
    // Shifts up to the last bit, and beyond the width: zeros, or copies of the sign.
    {"shl.b16 %h0, %h1, %r2;", 'h', {0xff, 12}, 0xf000},
    {"shl.b16 %h0, %h1, %r2;", 'h', {0xff, 16}, 0},
    {"shl.b32 %r0, %r1, %r2;", 'r', {0xff, 28}, 0xf0000000},
    {"shl.b32 %r0, %r1, %r2;", 'r', {0xff, 32}, 0},
    {"shl.b64 %d0, %d1, %r2;", 'd', {0xff, 60}, 0xf000000000000000},
    {"shl.b64 %d0, %d1, %r2;", 'd', {0xff, 200}, 0},
    {"shr.b16 %h0, %h1, %r2;", 'h', {0xff00, 12}, 0xf},
    {"shr.u16 %h0, %h1, %r2;", 'h', {0xff00, 12}, 0xf},
    {"shr.s16 %h0, %h1, %r2;", 'h', {0xff00, 12}, 0xffff},
    {"shr.b32 %r0, %r1, %r2;", 'r', {0xf0000000, 28}, 0xf},
    {"shr.u32 %r0, %r1, %r2;", 'r', {0xf0000000, 28}, 0xf},
    {"shr.u32 %r0, %r1, %r2;", 'r', {0xf0000000, 32}, 0},
    {"shr.s32 %r0, %r1, %r2;", 'r', {0xf0000000, 28}, kOnes32},
    {"shr.s32 %r0, %r1, %r2;", 'r', {0xf0000000, 99}, kOnes32},
    {"shr.b64 %d0, %d1, %r2;", 'd', {kOnes64, 60}, 0xf},
    {"shr.u64 %d0, %d1, %r2;", 'd', {kOnes64, 60}, 0xf},
    {"shr.s64 %d0, %d1, %r2;", 'd', {kOnes64 - 15, 2}, kOnes64 - 3},
    // Two words shifted as one; beyond 31 .wrap takes the low five bits and .clamp one whole word.
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 1}, 3},
    {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 33}, 3},
    {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 33}, 0x80000000},
    {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 4}, 0x18},
    {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 1}, 0xc0000000},
    {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 1, 40}, 1},
    // Counts and positions; all ones where there is no such bit.
    {"popc.b32 %r0, %r1;", 'r', {0xff01}, 9},
    {"popc.b64 %r0, %d1;", 'r', {kOnes64}, 64},
    {"clz.b32 %r0, %r1;", 'r', {1}, 31},
    {"clz.b32 %r0, %r1;", 'r', {0}, 32},
    {"clz.b64 %r0, %d1;", 'r', {1}, 63},
    {"bfind.u32 %r0, %r1;", 'r', {0x100}, 8},
    {"bfind.u32 %r0, %r1;", 'r', {0}, kOnes32},
    {"bfind.s32 %r0, %r1;", 'r', {0xffffff00}, 7},
    {"bfind.u64 %r0, %d1;", 'r', {uint64_t{1} << 40}, 40},
    {"bfind.s64 %r0, %d1;", 'r', {kOnes64}, kOnes32},
    {"bfind.shiftamt.u32 %r0, %r1;", 'r', {0x100}, 23},
    // Forward and backward from a bit that counts itself.
    {"fns.b32 %r0, %r1, %r2, %r3;", 'r', {0xaaaaaaaa, 3, 1}, 3},
    {"fns.b32 %r0, %r1, %r2, %r3;", 'r', {0xaaaaaaaa, 3, 2}, 5},
    {"fns.b32 %r0, %r1, %r2, %r3;", 'r', {0xaaaaaaaa, 3, static_cast<uint64_t>(-2)}, 1},
    {"fns.b32 %r0, %r1, %r2, %r3;", 'r', {0xaaaaaaaa, 2, 0}, kOnes32},
    {"fns.b32 %r0, %r1, %r2, %r3;", 'r', {1, 3, 2}, kOnes32},
    // Reversed.
    {"brev.b32 %r0, %r1;", 'r', {1}, 0x80000000},
    {"brev.b64 %d0, %d1;", 'd', {3}, 0xc000000000000000},
    // Fields inside of the number, reaching beyond it, and wholly outside.
    {"bfe.u32 %r0, %r1, %r2, %r3;", 'r', {0x12345678, 8, 12}, 0x456},
    {"bfe.s32 %r0, %r1, %r2, %r3;", 'r', {0x00000f00, 8, 4}, kOnes32},
    {"bfe.s32 %r0, %r1, %r2, %r3;", 'r', {0x80000000, 28, 20}, 0xfffffff8},
    {"bfe.u32 %r0, %r1, %r2, %r3;", 'r', {kOnes32, 40, 4}, 0},
    {"bfe.s32 %r0, %r1, %r2, %r3;", 'r', {kOnes32, 40, 4}, kOnes32},
    {"bfe.u32 %r0, %r1, %r2, %r3;", 'r', {kOnes32, 4, 0}, 0},
    {"bfe.u64 %d0, %d1, %r2, %r3;", 'd', {0x123456789abcdef0, 32, 16}, 0x5678},
    {"bfe.s64 %d0, %d1, %r2, %r3;", 'd', {0x0000ffff00000000, 32, 16}, kOnes64},
    // The length may be larger than what is left.
    {"bfi.b32 %r0, %r1, %r2, 8, 4;", 'r', {0xab, 0xffffffff}, 0xfffffbff},
    {"bfi.b32 %r0, %r1, %r2, %r3, 40;", 'r', {0xab, 0, 4}, 0xab0},
    {"bfi.b32 %r0, %r1, %r2, %r3, 0;", 'r', {0xab, 7, 4}, 7},
    {"bfi.b64 %d0, %d1, %d2, 32, 32;", 'd', {0x12345678, 0x9abcdef0}, 0x123456789abcdef0},
    // Masks and extensions.
    {"bmsk.clamp.b32 %r0, %r1, %r2;", 'r', {4, 8}, 0xff0},
    {"bmsk.clamp.b32 %r0, %r1, %r2;", 'r', {4, 99}, 0xfffffff0},
    {"bmsk.wrap.b32 %r0, %r1, %r2;", 'r', {36, 8}, 0xff0},
    {"szext.clamp.u32 %r0, %r1, %r2;", 'r', {0xabcd, 8}, 0xcd},
    {"szext.clamp.s32 %r0, %r1, %r2;", 'r', {0xabcd, 8}, 0xffffffcd},
    {"szext.clamp.s32 %r0, %r1, %r2;", 'r', {0xabcd, 64}, 0xabcd},
    {"szext.wrap.s32 %r0, %r1, %r2;", 'r', {0xabcd, 40}, 0xffffffcd},
    // A selector for each byte; its bit 3 spreads the byte's sign.
    {"prmt.b32 %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 0x7531}, 0x77553311},
    {"prmt.b32 %r0, %r1, %r2, 0x5410;", 'r', {0x33221100, 0x77665544}, 0x55441100},
    {"prmt.b32 %r0, %r1, %r2, 0x0009;", 'r', {0x33228100, 0}, 0x000000ff},
    {"prmt.b32.f4e %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 1}, 0x44332211},
    {"prmt.b32.b4e %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 1}, 0x66770011},
    {"prmt.b32.rc8 %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 2}, 0x22222222},
    {"prmt.b32.ecl %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 1}, 0x33221111},
    {"prmt.b32.ecr %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 2}, 0x22221100},
    {"prmt.b32.rc16 %r0, %r1, %r2, %r3;", 'r', {0x33221100, 0x77665544, 1}, 0x33223322},
};

}  // namespace

std::span<const Case> BitCases() { return kCases; }

}  // namespace gpuloom::softgpu
