// SPDX-License-Identifier: Apache-2.0
// Grids: divergence, barriers between warps, waiting, faults, and the ends of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "agent/softgpu/exec/testing/machine_fixture.h"

namespace gpuloom::softgpu {
namespace {

using testing::HasSubstr;

// A kernel "k" with one pointer parameter, in %d1, and the thread's index in its block in %r1.
std::string KernelText(std::string_view body, std::string_view before = "",
                       std::string_view tuning = "") {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  text.append(before).append("\n.visible .entry k(.param .u64 out) ").append(tuning);
  text.append(
      "\n{\n.reg .b32 %r<40>; .reg .b64 %d<40>; .reg .pred %p<20>; .reg .f32 %f<9>;\n"
      "ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x;\n");
  return text.append(body).append("\nret;\n}\n");
}

struct Ran {
  Outcome outcome;
  std::vector<uint32_t> words;
};

Ran RunKernel(std::string_view text, Dim3 grid, Dim3 block, size_t words = 1024,
              bool cooperative = false, Dim3 cluster = {}) {
  Machine machine(text);
  EXPECT_NE(machine.module(), nullptr) << machine.error();
  auto* out = machine.memory.AllocateArray<uint32_t>(words);
  machine.launch.cooperative = cooperative;
  machine.launch.cluster = cluster;
  Ran ran;
  ran.outcome = machine.Launch("k", grid, block, out);
  ran.words.assign(out, out + words);
  return ran;
}

constexpr std::string_view kStoreR2 = "mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2;";

TEST(Grid, BlocksAndThreadsSeeTheirPlace) {
  const Ran ran = RunKernel(
      KernelText(
          "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z; mov.u32 %r5, "
          "%tid.y;"
          "mov.u32 %r6, %tid.z; mad.lo.u32 %r7, %r4, 3, %r3; mad.lo.u32 %r7, %r7, 2, %r2;"
          "mad.lo.u32 %r8, %r6, 2, %r5; mad.lo.u32 %r8, %r8, 5, %r1; mad.lo.u32 %r9, %r7, 20, %r8;"
          "add.u32 %r10, %r9, 1; mad.wide.u32 %d2, %r9, 4, %d1; st.global.u32 [%d2], %r10;"),
      {2, 3, 2}, {5, 2, 2});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  for (uint32_t i = 0; i < 2 * 3 * 2 * 20; ++i) EXPECT_EQ(ran.words[i], i + 1);
  EXPECT_EQ(ran.words[240], 0u);
}

TEST(Grid, WarpsMeetAtBarriersAgainAndAgain) {
  // Thread i adds what its neighbour wrote in the round before.
  const Ran ran = RunKernel(
      KernelText(
          "shl.b32 %r3, %r1, 2; mov.u32 %r4, buffer; add.u32 %r5, %r4, %r3; st.shared.u32 [%r5], "
          "%r1;"
          "add.u32 %r6, %r1, 1; rem.u32 %r6, %r6, 200; shl.b32 %r6, %r6, 2; add.u32 %r6, %r4, %r6;"
          "mov.u32 %r7, 0; mov.u32 %r2, 0; AGAIN: bar.sync 0; ld.shared.u32 %r8, [%r6]; bar.sync 0;"
          "st.shared.u32 [%r5], %r8; add.u32 %r2, %r2, %r8; add.u32 %r7, %r7, 1;"
          "setp.lt.u32 %p1, %r7, 10; @%p1 bra AGAIN;" +
              std::string(kStoreR2),
          ".shared .align 4 .b8 buffer[800];"),
      {3}, {200});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  for (uint32_t i = 0; i < 200; ++i) {
    uint32_t want = 0;
    for (uint32_t k = 1; k <= 10; ++k) want += (i + k) % 200;
    EXPECT_EQ(ran.words[i], want) << i;
  }
}

TEST(Grid, ThreadsThatEndedAreNotWaitedFor) {
  const Ran ran =
      RunKernel(KernelText("setp.ge.u32 %p1, %r1, 40; @%p1 exit; bar.sync 0; mov.u32 %r2, 7;" +
                           std::string(kStoreR2)),
                {1}, {96});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[39], 7u);
  EXPECT_EQ(ran.words[40], 0u);
}

TEST(Grid, NamedBarriersOfProducerAndConsumer) {
  // Warp 0 waits for the 64 threads of warps 1 and 2, which only arrive, and for itself.
  const Ran ran = RunKernel(
      KernelText("setp.lt.u32 %p1, %r1, 32; @%p1 bra WAIT; atom.shared.add.u32 %r3, [n], 1;"
                 "bar.arrive 2, 96; exit; WAIT: bar.sync 2, 96; ld.shared.u32 %r2, [n];" +
                     std::string(kStoreR2),
                 ".shared .align 4 .u32 n;"),
      {1}, {96});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[0], 64u);
}

TEST(Grid, ReductionBarriersCountAllThreads) {
  const Ran ran = RunKernel(KernelText("and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0;"
                                       "bar.red.popc.u32 %r2, 0, %p1;" +
                                       std::string(kStoreR2)),
                            {1}, {100});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(ran.words[i], 50u);
}

TEST(Grid, LanesOfAWarpMayFightForALock) {
  // Each lane takes a spin lock, changes what it guards without atomics, and gives it back.
  const Ran ran = RunKernel(
      KernelText(
          "mov.u32 %r2, 0; TAKE: atom.global.cas.b32 %r3, [%d1], 0, 1; setp.ne.u32 %p1, %r3, 0;"
          "@%p1 bra TAKE; ld.volatile.global.u32 %r4, [%d1+4]; add.u32 %r4, %r4, 1;"
          "st.volatile.global.u32 [%d1+4], %r4; membar.gl; atom.global.exch.b32 %r5, [%d1], 0;"),
      {2}, {128});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[1], 256u);
}

TEST(Grid, ALaneMayWaitForALaterOneOfItsWarp) {
  // Lane 0 spins until lane 31, which is behind the loop, has written.
  const Ran ran = RunKernel(
      KernelText(
          "setp.ne.u32 %p1, %r1, 0; @%p1 bra WRITE; SPIN: ld.volatile.global.u32 %r2, [%d1+400];"
          "setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN; bra DONE; WRITE: setp.ne.u32 %p3, %r1, 31;"
          "@%p3 bra DONE; mov.u32 %r2, 9; st.volatile.global.u32 [%d1+400], %r2; DONE:" +
          std::string(kStoreR2)),
      {1}, {32});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[0], 9u);
}

TEST(Grid, LanesThatWaitMayDivergeWhileTheyDo) {
  // The spinning lanes take two ways through their loop, and so does the lane that they wait for.
  const Ran ran = RunKernel(
      KernelText("mov.u32 %r2, 0; setp.eq.u32 %p1, %r1, 31; @%p1 bra WORK; and.b32 %r3, %r1, 1;"
                 "setp.eq.u32 %p2, %r3, 0; SPIN: @%p2 bra EVEN; add.u32 %r2, %r2, 1; bra NEXT;"
                 "EVEN: add.u32 %r2, %r2, 2; NEXT: ld.global.u32 %r4, [%d1+400];"
                 "setp.eq.u32 %p3, %r4, 0; @%p3 bra SPIN; mov.u32 %r2, 5; bra DONE;"
                 "WORK: mov.u32 %r5, 0; MORE: add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 3000;"
                 "@%p4 bra MORE; st.global.u32 [%d1+400], 9; mov.u32 %r2, 6; DONE:" +
                 std::string(kStoreR2)),
      {1}, {32});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[0], 5u);
  EXPECT_EQ(ran.words[1], 5u);
  EXPECT_EQ(ran.words[31], 6u);
}

TEST(Grid, AWarpMayWaitForAnotherThroughMemory) {
  const Ran ran = RunKernel(
      KernelText("setp.ge.u32 %p1, %r1, 32; @%p1 bra WRITE; SPIN: ld.acquire.gpu.global.u32 "
                 "%r2, [%d1+400];"
                 "setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN; bra DONE;"
                 "WRITE: mov.u32 %r2, 9; st.release.gpu.global.u32 [%d1+400], %r2; DONE:" +
                 std::string(kStoreR2)),
      {1}, {64});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[0], 9u);
}

TEST(Grid, BlocksOfACooperativeGridMayWaitForEachOther) {
  // Block 0 waits for the last one.
  const std::string text = KernelText(
      "mov.u32 %r2, %ctaid.x; atom.global.add.u32 %r3, [%d1], 1;"
      "SPIN: ld.volatile.global.u32 %r4, [%d1]; setp.lt.u32 %p1, %r4, 8; @%p1 bra SPIN;"
      "mad.wide.u32 %d2, %r2, 4, %d1; st.global.u32 [%d2+4], %r4;");
  const Ran ran = RunKernel(text, {8}, {1}, 1024, /*cooperative=*/true);
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[8], 8u);
}

TEST(Grid, CooperativeGroupsFindTheirBarrier) {
  // What cooperative_groups' grid().sync() does.
  const std::string text = KernelText(
      "mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; mov.b64 %d2, {%r3, %r2};"
      "setp.eq.u64 %p1, %d2, 0; @%p1 trap; atom.global.add.u32 %r4, [%d1], 1;"
      "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p2, %r5, 0; selp.u32 %r6, 0x7ffffffd, 1, %p2;"
      "atom.add.release.gpu.u32 %r7, [%d2+4], %r6; SPIN: ld.acquire.gpu.u32 %r8, [%d2+4];"
      "xor.b32 %r9, %r8, %r7; setp.gt.s32 %p3, %r9, -1; @%p3 bra SPIN; ld.global.u32 %r10, [%d1];"
      "mad.wide.u32 %d3, %r5, 4, %d1; st.global.u32 [%d3+4], %r10;");
  const Ran ran = RunKernel(text, {4}, {1}, 1024, /*cooperative=*/true);
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  for (uint32_t i = 1; i <= 4; ++i) EXPECT_EQ(ran.words[i], 4u);
  EXPECT_EQ(RunKernel(text, {4}, {1}).outcome.kind, Outcome::kTrap);
}

TEST(Grid, BlocksOfAClusterShareMemory) {
  // Each block writes its rank, then reads its neighbour's through the cluster's window.
  const Ran ran = RunKernel(
      KernelText(
          "mov.u32 %r2, %cluster_ctarank; st.shared.u32 [word], %r2; barrier.cluster.arrive;"
          "barrier.cluster.wait; add.u32 %r3, %r2, 1; and.b32 %r3, %r3, 3; mov.u32 %r4, word;"
          "mapa.shared::cluster.u32 %r5, %r4, %r3; ld.shared::cluster.u32 %r6, [%r5];"
          "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r7, %ctaid.x;"
          "mad.wide.u32 %d2, %r7, 4, %d1; add.u32 %r6, %r6, 100; st.global.u32 [%d2], %r6;",
          ".shared .align 4 .u32 word;"),
      {8}, {32}, 1024, false, {4});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(ran.words[i], 100 + (i % 4 + 1) % 4) << i;
}

TEST(Grid, DynamicSharedMemoryLiesBehindTheStatic) {
  Machine machine(
      KernelText("shl.b32 %r3, %r1, 2; mov.u32 %r4, dynamic; add.u32 %r4, %r4, %r3;"
                 "st.shared.u32 [%r4], %r1; st.shared.u32 [fixed], 77; bar.sync 0;"
                 "xor.b32 %r5, %r3, 4; mov.u32 %r6, dynamic; add.u32 %r6, %r6, %r5;"
                 "ld.shared.u32 %r2, [%r6];" +
                     std::string(kStoreR2),
                 ".shared .align 4 .b8 fixed[20];\n.extern .shared .align 16 .b8 dynamic[];"));
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_EQ(machine.module()->FindKernel("k")->static_shared_bytes, 20u);
  auto* out = machine.memory.AllocateArray<uint32_t>(64);
  machine.launch.dynamic_shared_bytes = 256;
  Outcome outcome = machine.Launch("k", {1}, {64}, out);
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  EXPECT_EQ(out[6], 7u);
  // One word too few: the last thread's store is outside.
  machine.launch.dynamic_shared_bytes = 252;
  outcome = machine.Launch("k", {1}, {64}, out);
  EXPECT_EQ(outcome.kind, Outcome::kIllegalAddress);
}

TEST(Grid, AFunctionBehindAPointerHasItsSharedMemory) {
  // The kernel names neither the function nor any shared memory.
  const Ran ran = RunKernel(
      KernelText("ld.global.u64 %d2, [table]; { .param .b64 a; st.param.b64 [a], %d1;"
                 "P: .callprototype _ (.param .b64 _); call %d2, (a), P; }",
                 ".func f(.param .b64 to) { .shared .align 4 .b32 s[4]; .reg .b32 %r; .reg .b64 %d;"
                 "ld.param.b64 %d, [to]; st.shared.u32 [s+12], 5; ld.shared.u32 %r, [s+12];"
                 "st.global.u32 [%d], %r; ret; }\n.global .u64 table = f;"),
      {1}, {1});
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(ran.words[0], 5u);
}

TEST(Grid, LocalMemoryBeginsWithZeros) {
  // Two kernels of one process with equally much local memory; the second reads what it never
  // wrote. With a call there is a stack, of which neither uses the place.
  for (const std::string call : {"", "call f;"}) {
    for (const std::string offset : {"256", "508"}) {
      const std::string own = ".local .align 4 .b8 own[512]; mov.u32 %r3, own; mov.u32 %r4, 60000;";
      const std::string place = call.empty() ? "[own+" + offset + "]" : "[%r4+" + offset + "]";
      const std::string writes =
          KernelText(own + call + "st.local.u32 " + place + ", 77;", ".func f() { ret; }");
      const std::string reads =
          KernelText(own + call + "ld.local.u32 %r2, " + place + ";" + std::string(kStoreR2),
                     ".func f() { ret; }");
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(RunKernel(writes, {1}, {32}).outcome.kind, Outcome::kOk);
      const Ran ran = RunKernel(reads, {1}, {32});
      ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
      for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(ran.words[i], 0u) << i;
    }
  }
}

// --- Faults
// -----------------------------------------------------------------------------------------

TEST(Faults, AddressOutsideOfEveryRange) {
  const Ran ran = RunKernel(KernelText("mov.u64 %d2, 4096; mad.wide.u32 %d2, %r1, 4, %d2; "
                                       "ld.global.u32 %r2, [%d2];"),
                            {1}, {32});
  EXPECT_EQ(ran.outcome.kind, Outcome::kIllegalAddress);
  EXPECT_EQ(ran.outcome.address, 4096u);
  EXPECT_THAT(ran.outcome.detail,
              HasSubstr("kernel k, ptx line 9: no memory to read at address 0x1000"));
}

TEST(Faults, OneByteBehindTheEnd) {
  const std::string text = KernelText("mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r1;");
  EXPECT_EQ(RunKernel(text, {1}, {64}, 64).outcome.kind, Outcome::kOk);
  const Ran ran = RunKernel(text, {1}, {64}, 63);
  EXPECT_EQ(ran.outcome.kind, Outcome::kIllegalAddress);
}

TEST(Faults, WritingWhatIsReadOnly) {
  Machine machine(KernelText("ld.global.u32 %r2, [%d1]; st.global.u32 [%d1], 1;"));
  const uint64_t out = machine.memory.Allocate(64, /*writable=*/false);
  EXPECT_EQ(machine.Launch("k", {1}, {1}, out).kind, Outcome::kIllegalAddress);
  Machine reader(KernelText("ld.global.u32 %r2, [%d1];"));
  EXPECT_EQ(reader.Launch("k", {1}, {1}, reader.memory.Allocate(64, false)).kind, Outcome::kOk);
}

TEST(Faults, UnalignedAccess) {
  Ran ran = RunKernel(KernelText("ld.global.u32 %r2, [%d1+2];"), {1}, {32});
  EXPECT_EQ(ran.outcome.kind, Outcome::kMisaligned);
  ran = RunKernel(KernelText("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+8];"), {1}, {32});
  EXPECT_EQ(ran.outcome.kind, Outcome::kMisaligned);
  ran = RunKernel(KernelText("atom.global.add.u64 %d2, [%d1+4], %d1;"), {1}, {32});
  EXPECT_EQ(ran.outcome.kind, Outcome::kMisaligned);
}

TEST(Faults, SharedAndLocalMemoryHaveEnds) {
  EXPECT_EQ(RunKernel(KernelText("ld.shared.u32 %r2, [s+16];", ".shared .b32 s[4];"), {1}, {1})
                .outcome.kind,
            Outcome::kIllegalAddress);
  EXPECT_EQ(RunKernel(KernelText(
                          ".local .align 4 .b8 l[16]; mov.u64 %d2, l; ld.local.u32 %r2, [%d2+16];"),
                      {1}, {1})
                .outcome.kind,
            Outcome::kIllegalAddress);
  EXPECT_EQ(
      RunKernel(KernelText(".local .align 4 .b8 l[16]; mov.u64 %d2, l; cvta.local.u64 %d3, %d2; "
                           "ld.u32 %r2, [%d3+-4];"),
                {1}, {1})
          .outcome.kind,
      Outcome::kIllegalAddress);
}

TEST(Faults, ParametersHaveABeginningAndAnEnd) {
  const auto kind_of = [](std::string_view load) {
    return RunKernel(KernelText(load), {1}, {32}).outcome.kind;
  };
  EXPECT_EQ(kind_of("ld.param.u32 %r2, [out+4];"), Outcome::kOk);
  EXPECT_EQ(kind_of("ld.param.u64 %d2, [out-8];"), Outcome::kIllegalAddress);
  EXPECT_EQ(kind_of("ld.param.u32 %r2, [out-4];"), Outcome::kIllegalAddress);
  EXPECT_EQ(kind_of("ld.param.u8 %r2, [-1];"), Outcome::kIllegalAddress);
  EXPECT_EQ(kind_of("ld.param.u64 %d2, [out+8];"), Outcome::kIllegalAddress);
  EXPECT_EQ(kind_of("ld.param.u64 %d2, [out+4];"), Outcome::kMisaligned);
  EXPECT_EQ(kind_of("ld.param.u16 %r2, [out-1];"), Outcome::kMisaligned);
}

TEST(Faults, TheFirstFaultEndsTheGrid) {
  const Ran ran = RunKernel(KernelText("mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 trap;"
                                       "mad.wide.u32 %d2, %r2, 4, %d1; st.global.u32 [%d2], 1;"),
                            {3}, {1});
  EXPECT_EQ(ran.outcome.kind, Outcome::kTrap);
  EXPECT_EQ(ran.words[0], 1u);
  EXPECT_EQ(ran.words[2], 0u);
}

TEST(Faults, IndirectCallOfNoFunction) {
  const Ran ran = RunKernel(KernelText("P: .callprototype _ (); call %d1, P;"), {1}, {1});
  EXPECT_EQ(ran.outcome.kind, Outcome::kInvalidPc);
}

TEST(Faults, EndlessRecursion) {
  const Ran ran = RunKernel(KernelText("call f;", ".func f()\n{\n call f; ret;\n}"), {1}, {1});
  EXPECT_EQ(ran.outcome.kind, Outcome::kStackOverflow);
}

TEST(Faults, BarrierWithAWrongCount) {
  EXPECT_EQ(RunKernel(KernelText("bar.sync 0, 33;"), {1}, {64}).outcome.kind,
            Outcome::kIllegalInstruction);
  EXPECT_EQ(RunKernel(KernelText("bar.sync 16;"), {1}, {64}).outcome.kind,
            Outcome::kIllegalInstruction);
}

TEST(Faults, EveryThreadWaitsForAnother) {
  const Ran ran = RunKernel(KernelText("setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 1; bra B; "
                                       "A: bar.sync 2; B:"),
                            {1}, {64});
  EXPECT_EQ(ran.outcome.kind, Outcome::kDeadlock);
}

TEST(Faults, FailedAssertion) {
  const Ran ran = RunKernel(
      KernelText(
          "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;"
          "mov.u64 %d2, text; st.param.b64 [a], %d2; st.param.b64 [b], %d2; mov.u32 %r2, 12;"
          "st.param.b32 [c], %r2; st.param.b64 [d], %d2; mov.u64 %d3, 1; st.param.b64 [e], %d3;"
          "call.uni __assertfail, (a, b, c, d, e); }",
          ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
          ".param .b64 e);\n.global .align 1 .b8 text[5] = {120, 62, 48, 33, 0};"),
      {1}, {1});
  EXPECT_EQ(ran.outcome.kind, Outcome::kAssert);
  EXPECT_THAT(ran.outcome.detail, HasSubstr("x>0!:12: x>0!: Assertion `x>0!` failed"));
}

TEST(Print, FormatsEachThreadsArguments) {
  testing::internal::CaptureStdout();
  const Ran ran = RunKernel(
      KernelText(
          ".local .align 8 .b8 args[40]; mov.u64 %d2, args; cvta.local.u64 %d3, %d2;"
          "st.local.u32 [%d2], %r1; mov.u64 %d4, 0d3FF8000000000000; st.local.u64 [%d2+8], %d4;"
          "mov.u64 %d5, word; st.local.u64 [%d2+16], %d5; mov.u64 %d6, -5;"
          "st.local.u64 [%d2+24], %d6; st.local.u32 [%d2+32], 33; mov.u64 %d7, format;"
          "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %d7;"
          "st.param.b64 [b], %d3; call.uni (r), vprintf, (a, b); ld.param.b32 %r2, [r]; }" +
              std::string(kStoreR2),
          ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
          // "%03d %.2f %s %lld %c%%\n"
          ".global .align 1 .b8 format[24] = {37, 48, 51, 100, 32, 37, 46, 50, 102, 32, 37, 115,"
          " 32, 37, 108, 108, 100, 32, 37, 99, 37, 37, 10, 0};\n"
          ".global .align 1 .b8 word[3] = {104, 105, 0};"),
      {1}, {2});
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(printed, "000 1.50 hi -5 !%\n001 1.50 hi -5 !%\n");
  EXPECT_EQ(ran.words[1], 5u);
}

TEST(Print, TakesPrecisionsAndShortNumbersAsCDoes) {
  testing::internal::CaptureStdout();
  const std::string format = "%.*f|%.*f|%-*d|%hd|%hhd|%hu|%hhx|%hho|%d\n";
  std::string bytes;
  for (const char c : format) bytes.append(std::to_string(static_cast<int>(c))).append(", ");
  const Ran ran = RunKernel(
      KernelText(
          ".local .align 8 .b8 args[80]; mov.u64 %d2, args; cvta.local.u64 %d3, %d2;"
          "mov.u64 %d4, 0d3FF8000000000000; st.local.u32 [%d2], -1; st.local.u64 [%d2+8], %d4;"
          "st.local.u32 [%d2+16], 1; st.local.u64 [%d2+24], %d4; st.local.u32 [%d2+32], -3;"
          "st.local.u32 [%d2+36], 7; st.local.u32 [%d2+40], 0x1ffff; st.local.u32 [%d2+44], 0x180;"
          "st.local.u32 [%d2+48], 0x1ffff; st.local.u32 [%d2+52], 0x1fe;"
          "st.local.u32 [%d2+56], 0x108; st.local.u32 [%d2+60], 0x1ffff; mov.u64 %d7, format;"
          "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %d7;"
          "st.param.b64 [b], %d3; call.uni (r), vprintf, (a, b); }",
          ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
          ".global .align 1 .b8 format[] = {" +
              bytes + "0};\n"),
      {1}, {1});
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(ran.outcome.kind, Outcome::kOk) << ran.outcome.detail;
  EXPECT_EQ(printed, "1.500000|1.5|7  |-1|-128|65535|fe|10|131071\n");
}

TEST(Faults, MemoryUnmappedUnderARunningKernel) {
  Machine machine(KernelText("SPIN: ld.volatile.global.u32 %r2, [%d1]; bra SPIN;"));
  const uint64_t out = machine.memory.Allocate(64);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    machine.memory.Unmap(out);
  });
  const Outcome outcome = machine.Launch("k", {1}, {32}, out);
  other.join();
  EXPECT_EQ(outcome.kind, Outcome::kIllegalAddress);
}

// --- The end of a run
// -------------------------------------------------------------------------------

TEST(Stop, EndsAnEndlessKernelSoon) {
  for (const char* body : {"SPIN: bra SPIN;", "SPIN: nanosleep.u32 1000000; bra SPIN;",
                           "SPIN: atom.global.add.u32 %r2, [%d1], 1; bra SPIN;"}) {
    Machine machine(KernelText(body));
    auto* out = machine.memory.AllocateArray<uint32_t>(16);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      machine.stop = true;
    });
    const Outcome outcome = machine.Launch("k", {1}, {64}, out);
    other.join();
    EXPECT_EQ(outcome.kind, Outcome::kStopped);
  }
}

TEST(Threads, GridsOnSeveralThreadsShareAtomics) {
  Machine machine(
      KernelText("atom.global.add.u32 %r2, [%d1], 1; red.global.add.f32 [%d1+4], 0f3F800000;"));
  auto* out = machine.memory.AllocateArray<uint32_t>(2);
  const Kernel& kernel = *machine.module()->FindKernel("k");
  const auto run = [&] {
    Grid grid;
    grid.module = machine.module();
    grid.kernel = &kernel;
    grid.grid = {50};
    grid.block = {128};
    const uint64_t param = reinterpret_cast<uint64_t>(out);
    grid.params = reinterpret_cast<const std::byte*>(&param);
    EXPECT_EQ(softgpu::Run(grid, machine.memory, machine.stop).kind, Outcome::kOk);
  };
  std::thread first(run);
  std::thread second(run);
  first.join();
  second.join();
  EXPECT_EQ(out[0], 12800u);
  EXPECT_EQ(std::bit_cast<float>(out[1]), 12800.0f);
}

TEST(Refused, WhatCannotRun) {
  Machine machine(KernelText(""));
  EXPECT_EQ(machine.Launch("k", {1}, {1025}, uint64_t{0}).kind, Outcome::kIllegalInstruction);
  EXPECT_EQ(machine.Launch("k", {1}, {0}, uint64_t{0}).kind, Outcome::kIllegalInstruction);
  machine.launch.cluster = {3};
  EXPECT_EQ(machine.Launch("k", {4}, {32}, uint64_t{0}).kind, Outcome::kIllegalInstruction);
  machine.launch.cluster = {};
  machine.launch.dynamic_shared_bytes = kMaxSharedBytesPerBlock + 1;
  EXPECT_EQ(machine.Launch("k", {1}, {32}, uint64_t{0}).kind, Outcome::kIllegalInstruction);
}

}  // namespace
}  // namespace gpuloom::softgpu
