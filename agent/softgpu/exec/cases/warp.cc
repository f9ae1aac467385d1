// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr Case kCases[] = {
    // Each lane's value is its number, so that the result names the lane that it came from. 0x181f
    // divides the warp into groups of eight.
    {"shfl.sync.idx.b32 %r0, %r9, 7, 31, -1;", 'r', {}, 7},
    {"shfl.sync.idx.b32 %r0|%p0, %r9, 3, 0x181f, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return (lane & 24) | 3; }},
    {"shfl.sync.down.b32 %r0, %r9, 4, 31, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 28 ? lane + 4 : lane; }},
    {"shfl.sync.down.b32 %r0|%p0, %r9, 4, 31, -1;",
     'p',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 28; }},
    {"shfl.sync.down.b32 %r0, %r9, 1, 0x181f, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane % 8 == 7 ? lane : lane + 1; }},
    {"shfl.sync.up.b32 %r0, %r9, 4, 0, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane >= 4 ? lane - 4 : lane; }},
    {"shfl.sync.up.b32 %r0|%p0, %r9, 4, 0, -1;",
     'p',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane >= 4; }},
    {"shfl.sync.bfly.b32 %r0, %r9, 5, 31, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane ^ 5; }},
    // Half a warp shuffles among itself.
    {"setp.lt.u32 %p10, %r9, 16; @%p10 bra LOW; bra JOIN; LOW: shfl.sync.idx.b32 %r0, %r9, 2, 31, "
     "0xffff; "
     "JOIN: add.u32 %r0, %r0, 0;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 2 : kUntouched; }},
    // Some lanes, all, none, in each mode.
    {"setp.lt.u32 %p10, %r9, 5; vote.sync.all.pred %p0, %p10, -1;", 'p', {}, 0},
    {"setp.lt.u32 %p10, %r9, 50; vote.sync.all.pred %p0, %p10, -1;", 'p', {}, 1},
    {"setp.lt.u32 %p10, %r9, 5; vote.sync.any.pred %p0, %p10, -1;", 'p', {}, 1},
    {"setp.lt.u32 %p10, %r9, 50; vote.sync.any.pred %p0, !%p10, -1;", 'p', {}, 0},
    {"setp.lt.u32 %p10, %r9, 5; vote.sync.uni.pred %p0, %p10, -1;", 'p', {}, 0},
    {"setp.lt.u32 %p10, %r9, 50; vote.sync.uni.pred %p0, !%p10, -1;", 'p', {}, 1},
    {"setp.lt.u32 %p10, %r9, 5; vote.sync.ballot.b32 %r0, %p10, -1;", 'r', {}, 31},
    {"setp.lt.u32 %p10, %r9, 5; vote.sync.ballot.b32 %r0, !%p10, -1;", 'r', {}, 0xffffffe0},
    // Groups of eight lanes with equal values, then even and odd lanes by a bit that only 64 bits
    // have.
    {"shr.u32 %r10, %r9, 3; match.any.sync.b32 %r0, %r10, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) { return uint64_t{0xff} << (lane / 8 * 8); }},
    {"and.b32 %r10, %r9, 1; cvt.u64.u32 %d10, %r10; shl.b64 %d10, %d10, 40; "
     "match.any.sync.b64 %r0, %d10, -1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane % 2 == 0 ? 0x55555555 : 0xaaaaaaaa; }},
    // Equal in all lanes, or not.
    {"match.all.sync.b32 %r0|%p10, %r1, -1;", 'r', {5}, 0xffffffff},
    {"match.all.sync.b32 %r0|%p0, %r9, -1;", 'r', {}, 0},
    {"match.all.sync.b32 %r10|%p0, %r9, -1;", 'p', {}, 0},
    {"match.all.sync.b64 %r10|%p0, %d1, -1;", 'p', {5}, 1},
    // 496 is 0 + 1 + … + 31; then numbers of both signs.
    {"redux.sync.add.u32 %r0, %r9, -1;", 'r', {}, 496},
    {"redux.sync.add.s32 %r0, %r9, -1;", 'r', {}, 496},
    {"redux.sync.max.u32 %r0, %r9, -1;", 'r', {}, 31},
    {"sub.u32 %r10, %r9, 5; redux.sync.min.s32 %r0, %r10, -1;", 'r', {}, 0xfffffffb},
    {"sub.u32 %r10, %r9, 5; redux.sync.max.s32 %r0, %r10, -1;", 'r', {}, 26},
    {"sub.u32 %r10, %r9, 5; redux.sync.min.u32 %r0, %r10, -1;", 'r', {}, 0},
    {"or.b32 %r10, %r9, 64; redux.sync.and.b32 %r0, %r10, -1;", 'r', {}, 64},
    {"redux.sync.or.b32 %r0, %r9, -1;", 'r', {}, 31},
    {"mov.u32 %r10, %lanemask_eq; redux.sync.xor.b32 %r0, %r10, -1;", 'r', {}, 0xffffffff},
    // Without divergence all lanes are active.
    {"activemask.b32 %r0;", 'r', {}, 0xffffffff},
    // The lowest lane is elected.
    {"elect.sync %r0|%p0, -1;", 'r', {}, 0},
    {"elect.sync _|%p0, -1;", 'p', {}, 0, [](uint32_t lane) -> uint64_t { return lane == 0; }},
};

}  // namespace

std::span<const Case> WarpCases() { return kCases; }

}  // namespace gpuloom::softgpu
