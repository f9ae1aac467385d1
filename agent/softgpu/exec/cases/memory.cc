// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

constexpr Case kCases[] = {
    // Global memory: %d9 is the lane's own.
    {"st.global.u32 [%d9], %r1; ld.global.u32 %r0, [%d9];", 'r', {0x12345678}, 0x12345678},
    {"st.global.u8 [%d9+3], %r1; ld.global.u32 %r0, [%d9];", 'r', {0xab}, 0xab000000},
    {"st.global.u16 [%d9+2], %h1; ld.global.u32 %r0, [%d9];", 'r', {0xabcd}, 0xabcd0000},
    {"st.global.u64 [%d9+8], %d1; ld.global.u64 %d0, [%d9+8];",
     'd',
     {0x123456789abcdef0},
     0x123456789abcdef0},
    {"st.global.u32 [%d9], %r1; ld.global.s8 %r0, [%d9];", 'r', {0x80}, 0xffffff80},
    {"st.global.u32 [%d9], %r1; ld.global.u8 %r0, [%d9];", 'r', {0x180}, 0x80},
    {"st.global.u32 [%d9], %r1; ld.global.s16 %r0, [%d9];", 'r', {0x8000}, 0xffff8000},
    {"st.global.u32 [%d9], %r1; ld.global.s8 %h0, [%d9];", 'h', {0x80}, 0xff80},
    {"st.global.u32 [%d9], %r1; ld.global.s32 %d0, [%d9];", 'd', {0x80000000}, 0xffffffff80000000},
    {"st.global.b32 [%d9], %d1; ld.global.u64 %d0, [%d9];", 'd', {0x123456789}, 0x23456789},
    {"st.global.f32 [%d9], 0f3F800000; ld.global.f32 %r0, [%d9];", 'r', {}, F(1)},
    {"st.global.f64 [%d9], %d1; ld.global.f64 %d0, [%d9];", 'd', {D(2)}, D(2)},
    {"st.global.v2.u32 [%d9], {%r1, %r2}; ld.global.u64 %d0, [%d9];", 'd', {1, 2}, 0x200000001},
    {"st.global.v4.u32 [%d9], {%r1, %r2, %r3, 4}; ld.global.v4.u32 {%r10, %r11, %r12, %r0}, [%d9];",
     'r',
     {1, 2, 3},
     4},
    {"st.global.v4.f32 [%d9+16], {%r1, %r2, %r3, %r1}; ld.global.v2.f32 {%r10, %r0}, [%d9+16];",
     'r',
     {F(1), F(2), F(3)},
     F(2)},
    {"st.global.v2.u64 [%d9], {%d1, %d2}; ld.global.v2.u64 {%d10, %d0}, [%d9];", 'd', {1, 2}, 2},
    {"st.global.v4.u8 [%d9], {%r1, %r2, %r3, %r1}; ld.global.u32 %r0, [%d9];",
     'r',
     {1, 2, 3},
     0x01030201},
    {"st.global.v4.u16 [%d9], {%h1, %h2, %h3, %h1}; ld.global.v4.u16 {%h10, %h11, %h0, %h12}, "
     "[%d9];",
     'h',
     {1, 2, 3},
     3},
    {"st.volatile.global.u32 [%d9], %r1; ld.volatile.global.u32 %r0, [%d9];", 'r', {7}, 7},
    {"st.relaxed.gpu.global.u32 [%d9], %r1; ld.relaxed.sys.global.u32 %r0, [%d9];", 'r', {7}, 7},
    {"st.release.gpu.global.u32 [%d9], %r1; ld.acquire.gpu.global.u32 %r0, [%d9];", 'r', {7}, 7},
    {"st.weak.global.u32 [%d9], %r1; ld.weak.global.u32 %r0, [%d9];", 'r', {7}, 7},
    {"st.global.wb.u32 [%d9], %r1; ld.global.ca.u32 %r0, [%d9];", 'r', {7}, 7},
    {"ld.global.nc.u32 %r0, [%d9];", 'r', {}, 0},
    {"ld.global.nc.L1::no_allocate.u32 %r0, [%d9];", 'r', {}, 0},
    {"ld.global.L2::128B.u32 %r0, [%d9];", 'r', {}, 0},
    {"ldu.global.u32 %r0, [%d9];", 'r', {}, 0},
    {"st.u32 [%d9], %r1; ld.u32 %r0, [%d9];", 'r', {7}, 7},
    {"ld.global.u64 %d0, [answer];", 'd', {}, 42},
    {"mov.u64 %d10, answer; ld.global.u64 %d0, [%d10];", 'd', {}, 42},
    {"ld.global.u64 %d10, [pointer]; ld.u64 %d0, [%d10];", 'd', {}, 42},
    {"prefetch.global.L1 [%d9]; mov.u32 %r0, 1;", 'r', {}, 1},
    {"prefetch.global.L2 [%d9]; mov.u32 %r0, 1;", 'r', {}, 1},
    {"prefetchu.L1 [%d9]; mov.u32 %r0, 1;", 'r', {}, 1},
    {"discard.global.L2 [%d8], 128; mov.u32 %r0, 1;", 'r', {}, 1},
    // Constant memory.
    {"ld.const.u32 %r0, [table+8];", 'r', {}, 30},
    {"mov.u64 %d10, table; ld.const.u32 %r0, [%d10+4];", 'r', {}, 20},
    {"cvta.const.u64 %d10, %d11; mov.u64 %d11, table; cvta.const.u64 %d10, %d11; ld.u32 %r0, "
     "[%d10];",
     'r',
     {},
     10},
    // Parameters.
    {"ld.param.u64 %d10, [scratch]; sub.u64 %d0, %d9, %d10; mad.wide.u32 %d11, %r9, 64, 256; "
     "sub.u64 %d0, %d0, %d11;",
     'd',
     {},
     0},
    {"ld.param.u32 %r10, [scratch]; cvt.u32.u64 %r11, %d8; sub.u32 %r0, %r10, %r11;", 'r', {}, 0},
    {"mov.b64 %d10, scratch; ld.param.u64 %d11, [%d10]; mad.wide.u32 %d12, %r9, 64, 256; "
     "add.u64 %d11, %d11, %d12; sub.u64 %d0, %d9, %d11;",
     'd',
     {},
     0},
    {"mov.b64 %d10, scratch; cvta.param.u64 %d11, %d10; ld.u32 %r10, [%d11]; cvt.u32.u64 %r11, "
     "%d8; "
     "sub.u32 %r0, %r10, %r11;",
     'r',
     {},
     0},
    {"mov.b64 %d10, scratch; cvta.param.u64 %d11, %d10; isspacep.param %p0, %d11;", 'p', {}, 1},
    // Shared memory.
    {"st.shared.u32 [shared], %r1; ld.shared.u32 %r0, [shared];", 'r', {7}, 7},
    {"mov.u32 %r10, shared; st.shared.u32 [%r10+4], %r1; ld.shared.u32 %r0, [shared+4];",
     'r',
     {7},
     7},
    {"mov.u64 %d10, shared; st.shared.v2.u32 [%d10], {%r1, %r2}; ld.shared.u64 %d0, [%d10];",
     'd',
     {1, 2},
     0x200000001},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; st.u32 [%d11], %r1; ld.shared.u32 %r0, "
     "[%d10];",
     'r',
     {7},
     7},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; cvta.to.shared.u64 %d12, %d11; "
     "sub.u64 %d0, %d12, %d10;",
     'd',
     {},
     0},
    {"mov.u32 %r10, dynamic; st.shared.u32 [%r10+60], %r1; ld.shared.u32 %r0, [dynamic+60];",
     'r',
     {7},
     7},
    {"mov.u32 %r10, shared; shl.b32 %r11, %r9, 2; add.u32 %r10, %r10, %r11; st.shared.u32 [%r10], "
     "%r9; "
     "ld.shared.u32 %r0, [%r10];",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane; }},
    {"mov.u32 %r10, shared; st.shared.u32 [%r10], %r1; mapa.shared::cluster.u32 %r11, %r10, 0; "
     "ld.shared::cluster.u32 %r0, [%r11];",
     'r',
     {7},
     7},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; st.u32 [%d11], %r1; mapa.u64 %d12, %d11, "
     "0; "
     "ld.u32 %r0, [%d12];",
     'r',
     {7},
     7},
    {"mov.u32 %r10, shared; getctarank.shared::cluster.u32 %r0, %r10;", 'r', {}, 0},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; getctarank.u64 %r0, %d11;", 'r', {}, 0},
    {"st.global.u32 [%d8], 5; mov.u32 %r10, shared; cp.async.ca.shared.global [%r10], [%d8], 4; "
     "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r0, [%r10];",
     'r',
     {},
     5},
    {"st.global.u32 [%d8+12], 5; mov.u32 %r10, shared; "
     "cp.async.cg.shared.global.L2::128B [%r10], [%d8], 16; cp.async.wait_all; "
     "ld.shared.u32 %r0, [%r10+12];",
     'r',
     {},
     5},
    {"st.global.v2.u32 [%d8], {5, 6}; mov.u32 %r10, shared; "
     "cp.async.ca.shared.global [%r10], [%d8], 8, %r1; cp.async.wait_all; ld.shared.u64 %d0, "
     "[%r10];",
     'd',
     {4},
     5},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 33; bar.sync 0; "
     "st.global.u32 [%d9], %r9; mov.u32 %r10, shared; shl.b32 %r11, %r9, 2; add.u32 %r10, %r10, "
     "%r11; "
     "cp.async.ca.shared.global [%r10+16], [%d9], 4; cp.async.mbarrier.arrive.shared.b64 [shared]; "
     "mbarrier.arrive.shared.b64 %d10, [shared]; @%p10 mbarrier.arrive.shared.b64 %d11, [shared]; "
     "WAIT: mbarrier.try_wait.parity.shared.b64 %p11, [shared], 0; @!%p11 bra WAIT; "
     "ld.shared.u32 %r0, [%r10+16];",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane; }},
    // A block of memory to shared memory, and back.
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 1; st.global.u32 [%d8], "
     "77; "
     "fence.proxy.async; bar.sync 0; @!%p10 bra WAIT; mov.u32 %r10, shared; "
     "mbarrier.arrive.expect_tx.shared.b64 %d10, [shared], 32; "
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10+16], [%d8], 32, "
     "[%r10]; "
     "WAIT: mbarrier.try_wait.parity.shared.b64 %p11, [shared], 0; @!%p11 bra WAIT; "
     "ld.shared.u32 %r0, [shared+16];",
     'r',
     {},
     77},
    {"setp.eq.u32 %p10, %r9, 0; st.shared.u32 [shared], 78; fence.proxy.async; bar.sync 0; "
     "@!%p10 bra DONE; mov.u32 %r10, shared; "
     "cp.async.bulk.global.shared::cta.bulk_group [%d8], [%r10], 16; cp.async.bulk.commit_group; "
     "cp.async.bulk.wait_group 0; DONE: bar.sync 0; ld.volatile.global.u32 %r0, [%d8];",
     'r',
     {},
     78},
    {"cp.async.bulk.prefetch.L2.global [%d8], 16; cp.async.bulk.wait_group.read 0; mov.u32 %r0, 1;",
     'r',
     {},
     1},
    // Local memory.
    {"st.local.u32 [local], %r9; ld.local.u32 %r0, [local];",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane; }},
    {"mov.u64 %d10, local; st.local.u64 [%d10+8], %d1; ld.local.u64 %d0, [local+8];", 'd', {9}, 9},
    {"mov.u64 %d10, local; cvta.local.u64 %d11, %d10; st.u32 [%d11+4], %r9; ld.local.u32 %r0, "
     "[local+4];",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane; }},
    {"mov.u64 %d10, local; cvta.local.u64 %d11, %d10; cvta.to.local.u64 %d12, %d11; "
     "sub.u64 %d0, %d12, %d10;",
     'd',
     {},
     0},
    // Which space an address lies in.
    {"isspacep.global %p0, %d9;", 'p', {}, 1},
    {"isspacep.shared %p0, %d9;", 'p', {}, 0},
    {"isspacep.local %p0, %d9;", 'p', {}, 0},
    {"isspacep.const %p0, %d9;", 'p', {}, 0},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; isspacep.shared %p0, %d11;", 'p', {}, 1},
    {"mov.u64 %d10, shared; cvta.shared.u64 %d11, %d10; isspacep.shared::cluster %p0, %d11;",
     'p',
     {},
     1},
    {"mov.u64 %d10, local; cvta.local.u64 %d11, %d10; isspacep.local %p0, %d11;", 'p', {}, 1},
    {"mov.u64 %d10, local; cvta.local.u64 %d11, %d10; isspacep.global %p0, %d11;", 'p', {}, 0},
    {"cvta.global.u64 %d10, %d9; cvta.to.global.u64 %d11, %d10; sub.u64 %d0, %d11, %d9;",
     'd',
     {},
     0},
    // Policies and priorities of the cache change nothing.
    {"createpolicy.fractional.L2::evict_last.b64 %d10, 1.0; st.global.u32 [%d9], %r1; "
     "ld.global.L2::cache_hint.u32 %r0, [%d9], %d10;",
     'r',
     {31},
     31},
    {"createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d10, 0.5; "
     "st.global.L2::cache_hint.u32 [%d9], %r1, %d10; ld.global.u32 %r0, [%d9];",
     'r',
     {32},
     32},
    {"createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %d10, [%d8], 0x100, 0x400; "
     "atom.global.add.L2::cache_hint.u32 %r10, [%d9], %r1, %d10; ld.global.u32 %r0, [%d9];",
     'r',
     {33},
     33},
    {"st.global.u32 [%d8], 34; applypriority.global.L2::evict_normal [%d8], 128; "
     "prefetch.global.L2::evict_last [%d8]; bar.sync 0; ld.global.u32 %r0, [%d8];",
     'r',
     {},
     34},
    // Lanes that ignore their source copy zeros.
    {"{ .reg .b32 %at; mov.u32 %at, shared; mad.lo.u32 %at, %r9, 8, %at; "
     "st.shared.u32 [%at], 9; st.global.u32 [%d9], %r1; setp.lt.u32 %p10, %r9, 16; "
     "cp.async.ca.shared.global [%at], [%d9], 4, %p10; cp.async.wait_all; "
     "ld.shared.u32 %r0, [%at]; }",
     'r',
     {35},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 0 : 35; }},
    {"{ .reg .b32 %at; .reg .b64 %policy; mov.u32 %at, shared; mad.lo.u32 %at, %r9, 4, %at; "
     "createpolicy.fractional.L2::evict_first.b64 %policy; st.global.u32 [%d9], %r1; "
     "cp.async.ca.shared.global.L2::cache_hint [%at], [%d9], 4, %policy; cp.async.wait_all; "
     "ld.shared.u32 %r0, [%at]; }",
     'r',
     {36},
     36},
    // A block of memory added to another one.
    {"setp.eq.u32 %p10, %r9, 0; st.shared.u32 [shared], 5; st.shared.u32 [shared+12], 6; "
     "st.global.u32 [%d8], 100; st.global.u32 [%d8+12], 200; fence.proxy.async; bar.sync 0; "
     "@!%p10 bra DONE; mov.u32 %r10, shared; "
     "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d8], [%r10], 16; "
     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE: bar.sync 0; "
     "ld.volatile.global.u32 %r10, [%d8]; ld.volatile.global.u32 %r11, [%d8+12]; "
     "mad.lo.u32 %r0, %r10, 1000, %r11;",
     'r',
     {},
     105206},
    // Two halves, 1 and 2 and 2 and 3, of which the greater ones stay.
    {"setp.eq.u32 %p10, %r9, 0; st.shared.u32 [shared], 0x40003c00; "
     "st.global.u32 [%d8], 0x3c004200; fence.proxy.async; bar.sync 0; @!%p10 bra DONE; "
     "mov.u32 %r10, shared; "
     "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f16 [%d8], [%r10], 16; "
     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE: bar.sync 0; "
     "ld.volatile.global.u32 %r0, [%d8];",
     'r',
     {},
     0x40004200},
    // Directives without a space between them.
    {"{ .reg.b32 %here, %there; mov.b32 %here, %r1; mov.b32 %there, %here; mov.b32 %r0, %there; }",
     'r',
     {39},
     39},
    // Local memory of a size that is known when the program runs: two pieces that do not overlap.
    {"{ .reg .b64 %size, %one, %two; add.u64 %size, %d1, 4; alloca.u64 %one, %size, 16; "
     "alloca.u64 %two, %size; st.local.u32 [%one], %r9; st.local.u32 [%two], %r2; "
     "st.local.u32 [%one+4], %r2; ld.local.u32 %r10, [%one]; ld.local.u32 %r11, [%two]; "
     "mad.lo.u32 %r0, %r10, 100, %r11; }",
     'r',
     {4, 7},
     0,
     [](uint32_t lane) -> uint64_t { return lane * 100 + 7; }},
    // More in all than there is, but never at once: a thread has 1 KiB unless the program asks for
    // more.
    {"{ .reg .b64 %place, %at; .reg .b32 %i; .reg .pred %more; mov.u32 %i, 0; NEXT: "
     "stacksave.u64 %place; alloca.u64 %at, 256, 8; st.local.u32 [%at], %i; "
     "ld.local.u32 %r0, [%at]; stackrestore.u64 %place; add.u32 %i, %i, 1; "
     "setp.lt.u32 %more, %i, 1000; @%more bra NEXT; }",
     'r',
     {},
     999},
};

}  // namespace

std::span<const Case> MemoryCases() { return kCases; }

}  // namespace gpuloom::softgpu
