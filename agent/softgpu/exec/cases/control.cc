// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

uint64_t Lane(uint32_t lane) { return lane; }

constexpr Case kCases[] = {
    // Branches.
    {"bra.uni OVER; mov.u32 %r0, 1; OVER: add.u32 %r0, %r0, 1;", 'r', {}, kUntouched + 1},
    {"setp.lt.u32 %p10, %r9, 16; @%p10 bra LOW; mov.u32 %r0, 2; bra JOIN; LOW: mov.u32 %r0, 1; "
     "JOIN: add.u32 %r0, %r0, 10;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 11 : 12; }},
    {"setp.lt.u32 %p10, %r9, 16; @!%p10 bra HIGH; mov.u32 %r0, 1; HIGH: add.u32 %r0, %r0, 10;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 11 : kUntouched + 10; }},
    // A loop that each lane leaves after another number of turns.
    {"mov.u32 %r0, 0; mov.u32 %r10, 0; AGAIN: add.u32 %r0, %r0, 3; add.u32 %r10, %r10, 1; "
     "setp.le.u32 %p10, %r10, %r9; @%p10 bra AGAIN; activemask.b32 %r11; and.b32 %r11, %r11, 0;"
     " add.u32 %r0, %r0, %r11;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return 3 * (lane + 1); }},
    {"and.b32 %r10, %r9, 3; TARGETS: .branchtargets ZERO, ONE, TWO, THREE; brx.idx %r10, TARGETS; "
     "ZERO: mov.u32 %r0, 100; bra END; ONE: mov.u32 %r0, 101; bra END; TWO: mov.u32 %r0, 102; bra "
     "END; "
     "THREE: mov.u32 %r0, 103; END: add.u32 %r0, %r0, 1;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return 101 + lane % 4; }},
    {"mov.u32 %r10, 1; TARGETS: .branchtargets ZERO, ONE; brx.idx.uni %r10, TARGETS; "
     "ZERO: mov.u32 %r0, 100; ONE: add.u32 %r0, %r0, 1;",
     'r',
     {},
     kUntouched + 1},
    // Inline assembly repeats its labels in scopes of its own.
    {"{ .reg .u32 %t; mov.u32 %t, 5; L: mov.u32 %r0, %t; } { .reg .u32 %t; mov.u32 %t, 6; bra L; "
     "mov.u32 %t, 9; L: add.u32 %r0, %r0, %t; }",
     'r',
     {},
     11},
    // Calls.
    {"{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), twice, (a); "
     "ld.param.b32 %r0, [b]; }",
     'r',
     {21},
     42},
    {"{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; @%p0 bra SKIP; call (b), factorial, "
     "(a); "
     "SKIP: ld.param.b32 %r0, [b]; }",
     'r',
     {6},
     720},
    // Recursion to another depth in each lane.
    {"and.b32 %r10, %r9, 7; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r10; "
     "call (b), factorial, (a); ld.param.b32 %r0, [b]; }",
     'r',
     {},
     0,
     [](uint32_t lane) {
       uint64_t result = 1;
       for (uint32_t i = 2; i <= lane % 8; ++i) result *= i;
       return result;
     }},
    {"mov.u64 %d10, twice; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; "
     "PROTO: .callprototype (.param .b32 _) _ (.param .b32 _); call (b), %d10, (a), PROTO; "
     "ld.param.b32 %r0, [b]; }",
     'r',
     {21},
     42},
    // Another function in each lane.
    {"and.b32 %r10, %r9, 1; mul.wide.u32 %d10, %r10, 8; mov.u64 %d11, functions; add.u64 %d11, "
     "%d11, %d10; "
     "ld.global.u64 %d12, [%d11]; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r9; "
     "PROTO: .callprototype (.param .b32 _) _ (.param .b32 _); call (b), %d12, (a), PROTO; "
     "ld.param.b32 %r0, [b]; }",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane % 2 == 0 ? 2 * lane : 3 * lane; }},
    // Ends of threads.
    {"ld.param.u64 %at, [results]; cvta.to.global.u64 %at, %at; mad.wide.u32 %at, %lane, 8, %at; "
     "st.global.u64 [%at], %d1; setp.lt.u32 %p10, %r9, 16; @%p10 exit; mov.u64 %d0, 8;",
     'd',
     {7},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 7 : 8; }},
    {"ld.param.u64 %at, [results]; cvta.to.global.u64 %at, %at; mad.wide.u32 %at, %lane, 8, %at; "
     "st.global.u64 [%at], %d1; setp.lt.u32 %p10, %r9, 16; @%p10 ret; mov.u64 %d0, 8;",
     'd',
     {7},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 7 : 8; }},
    {"setp.eq.u32 %p10, %r1, 1; @%p10 trap; mov.u32 %r0, 1;", 'r', {0}, 1},
    // Instructions without an effect that a program could see.
    {"nanosleep.u32 100; mov.u32 %r0, 1;", 'r', {}, 1},
    {"pmevent 1; mov.u32 %r0, 1;", 'r', {}, 1},
    {"@%p1 brkpt; mov.u32 %r0, 1;", 'r', {0}, 1},
    {"griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u32 %r0, 1;", 'r', {}, 1},
    // Barriers. The block has one warp.
    {"st.shared.u32 [shared], %r1; bar.sync 0; ld.shared.u32 %r0, [shared];", 'r', {7}, 7},
    {"bar.sync 3, 32; mov.u32 %r0, 1;", 'r', {}, 1},
    {"barrier.sync 1; mov.u32 %r0, 1;", 'r', {}, 1},
    {"barrier.cta.sync.aligned 0; mov.u32 %r0, 1;", 'r', {}, 1},
    {"bar.cta.arrive 1, 64; bar.cta.sync 1, 64; mov.u32 %r0, 1;", 'r', {}, 1},
    {"setp.lt.u32 %p10, %r9, 5; bar.red.popc.u32 %r0, 0, %p10;", 'r', {}, 5},
    {"setp.lt.u32 %p10, %r9, 5; bar.red.popc.u32 %r0, 0, 32, !%p10;", 'r', {}, 27},
    {"setp.lt.u32 %p10, %r9, 5; bar.red.and.pred %p0, 0, %p10;", 'p', {}, 0},
    {"setp.lt.u32 %p10, %r9, 5; bar.red.or.pred %p0, 0, %p10;", 'p', {}, 1},
    {"setp.lt.u32 %p10, %r9, 50; barrier.cta.red.and.pred %p0, 0, %p10;", 'p', {}, 1},
    {"bar.warp.sync -1; mov.u32 %r0, 1;", 'r', {}, 1},
    // Halves of a warp that meet at barriers in different places.
    {"setp.lt.u32 %p10, %r9, 16; @%p10 bra LOW; st.shared.u32 [shared], 5; bar.warp.sync -1; "
     "bra JOIN; LOW: bar.warp.sync -1; ld.shared.u32 %r0, [shared]; JOIN: add.u32 %r0, %r0, 0;",
     'r',
     {},
     0,
     [](uint32_t lane) -> uint64_t { return lane < 16 ? 5 : kUntouched; }},
    {"barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r0, 1;", 'r', {}, 1},
    {"barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.u32 %r0, "
     "1;",
     'r',
     {},
     1},
    // Barriers in shared memory.
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 32; bar.sync 0; "
     "mbarrier.arrive.shared.b64 %d10, [shared]; WAIT: mbarrier.test_wait.shared.b64 %p11, "
     "[shared], "
     "%d10; @!%p11 bra WAIT; mov.u32 %r0, 1;",
     'r',
     {},
     1},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 33; bar.sync 0; "
     "mbarrier.arrive.shared.b64 %d10, [shared]; bar.sync 0; "
     "mbarrier.test_wait.shared.b64 %p0, [shared], %d10;",
     'p',
     {},
     0},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared::cta.b64 [shared], 64; bar.sync 0; "
     "mbarrier.arrive.release.cta.shared::cta.b64 %d10, [shared], 2; WAIT: "
     "mbarrier.try_wait.parity.shared::cta.b64 %p11, [shared], 0; @!%p11 bra WAIT; "
     "mbarrier.test_wait.parity.shared.b64 %p0, [shared], 1;",
     'p',
     {},
     0},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 32; bar.sync 0; "
     "mbarrier.arrive_drop.shared.b64 %d10, [shared]; mbarrier.pending_count.b64 %r10, %d10; "
     "redux.sync.max.u32 %r0, %r10, -1;",
     'r',
     {},
     32},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 1; bar.sync 0; "
     "@!%p10 bra WAIT; mbarrier.arrive.expect_tx.shared.b64 %d10, [shared], 16; "
     "mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [shared], 16; WAIT: "
     "mbarrier.try_wait.parity.shared.b64 %p11, [shared], 0; @!%p11 bra WAIT; mov.u32 %r0, 1;",
     'r',
     {},
     1},
    {"setp.eq.u32 %p10, %r9, 0; @%p10 mbarrier.init.shared.b64 [shared], 1; bar.sync 0; "
     "@%p10 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [shared], 8; "
     "@%p10 mbarrier.arrive.shared.b64 %d10, [shared]; bar.sync 0; "
     "mbarrier.test_wait.parity.shared.b64 %p0, [shared], 0; bar.sync 0; "
     "@%p10 mbarrier.inval.shared.b64 [shared];",
     'p',
     {},
     0},
    {"membar.cta; membar.gl; membar.sys; mov.u32 %r0, 1;", 'r', {}, 1},
    {"fence.sc.gpu; fence.acq_rel.cta; fence.proxy.async; mov.u32 %r0, 1;", 'r', {}, 1},
    // Special registers, of the first of one block of 32 threads.
    {"mov.u32 %r0, %tid.x;", 'r', {}, 0, Lane},
    {"mov.u32 %r0, %tid.y;", 'r', {}, 0},
    {"mov.u32 %r0, %ntid.x;", 'r', {}, 32},
    {"mov.u32 %r0, %ntid.z;", 'r', {}, 1},
    {"mov.u32 %r0, %ctaid.x;", 'r', {}, 0},
    {"mov.u32 %r0, %nctaid.x;", 'r', {}, 1},
    // A warp's place on its multiprocessor: any number is right.
    {"mov.u32 %r10, %warpid; mov.u32 %r0, 1;", 'r', {}, 1},
    {"mov.u32 %r0, %laneid;", 'r', {}, 0, Lane},
    {"mov.u32 %r0, %lanemask_eq;", 'r', {}, 0, [](uint32_t lane) { return uint64_t{1} << lane; }},
    {"mov.u32 %r0, %lanemask_lt;",
     'r',
     {},
     0,
     [](uint32_t lane) { return (uint64_t{1} << lane) - 1; }},
    {"mov.u32 %r0, %lanemask_le;",
     'r',
     {},
     0,
     [](uint32_t lane) { return (uint64_t{2} << lane) - 1; }},
    {"mov.u32 %r0, %lanemask_gt;",
     'r',
     {},
     0,
     [](uint32_t lane) { return 0xffffffff & ~((uint64_t{2} << lane) - 1); }},
    {"mov.u32 %r0, %lanemask_ge;",
     'r',
     {},
     0,
     [](uint32_t lane) { return 0xffffffff & ~((uint64_t{1} << lane) - 1); }},
    {"mov.u32 %r0, %cluster_ctarank;", 'r', {}, 0},
    {"mov.u32 %r0, %cluster_nctarank;", 'r', {}, 1},
    {"mov.u32 %r0, %clusterid.x;", 'r', {}, 0},
    {"mov.u32 %r0, %nclusterid.x;", 'r', {}, 1},
    {"mov.u32 %r0, %cluster_nctaid.y;", 'r', {}, 1},
    {"mov.u32 %r0, %dynamic_smem_size;", 'r', {}, 64},
    // Time passes, at least while a thread sleeps.
    {"mov.u64 %d10, %clock64; nanosleep.u32 1000; mov.u64 %d11, %clock64; setp.gt.u64 %p0, %d11, "
     "%d10;",
     'p',
     {},
     1},
    {"mov.u32 %r10, %clock; mov.u32 %r0, 1;", 'r', {}, 1},
    {"mov.u64 %d10, %globaltimer; mov.u64 %d11, %globaltimer; setp.ge.u64 %p0, %d11, %d10;",
     'p',
     {},
     1},
};

}  // namespace

std::span<const Case> ControlCases() { return kCases; }

}  // namespace gpuloom::softgpu
