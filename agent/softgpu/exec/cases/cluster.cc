// SPDX-License-Identifier: Apache-2.0
// Instructions that reach the next block of the cluster, or this one if it is alone.
#include "agent/softgpu/exec/cases/instruction_cases.h"

namespace gpuloom::softgpu {
namespace {

// The block's barrier in %r10 and the next block's in %r11; all blocks' barriers are made before
// anybody goes on, and none ends before all have been reached.
#define BEFORE(bytes)                                                                       \
  "setp.eq.u32 %p10, %r9, 0; mov.u32 %r10, shared; add.u32 %r14, %r10, 32; mov.u32 %r12, "  \
  "%cluster_ctarank; "                                                                      \
  "mov.u32 %r13, %cluster_nctarank; add.u32 %r12, %r12, 1; rem.u32 %r12, %r12, %r13; "      \
  "mapa.shared::cluster.u32 %r11, %r10, %r12; @%p10 mbarrier.init.shared.b64 [shared], 1; " \
  "@%p10 st.shared.u64 [shared+16], 7; fence.mbarrier_init.release.cluster; "               \
  "@%p10 mbarrier.arrive.expect_tx.shared.b64 %d10, [shared], " bytes                       \
  "; barrier.cluster.arrive; barrier.cluster.wait; "
#define AFTER                                                                      \
  "WAIT: mbarrier.try_wait.parity.shared.b64 %p11, [shared], 0; @!%p11 bra WAIT; " \
  "ld.shared.u64 %d0, [shared+16]; barrier.cluster.arrive; barrier.cluster.wait;"

constexpr Case kCases[] = {
    {BEFORE("8") "@!%p10 bra WAIT; "
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r11+16], "
                 "{%r1, %r2}, "
                 "[%r11]; " AFTER,
     'd',
     {37, 38},
     uint64_t{38} << 32 | 37},
    {BEFORE("16") "@!%p10 bra WAIT; st.shared.u64 [shared+32], 39; fence.proxy.async; "
                  "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                  "[%r11+16], [%r14], 16, "
                  "[%r11]; " AFTER,
     'd',
     {},
     39},
    {BEFORE("128") "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
                   "[%r11+16], "
                   "%r9, [%r11]; " AFTER,
     'd',
     {},
     7 + 31 * 16},
};

#undef BEFORE
#undef AFTER

}  // namespace

std::span<const Case> ClusterCases() { return kCases; }

}  // namespace gpuloom::softgpu
