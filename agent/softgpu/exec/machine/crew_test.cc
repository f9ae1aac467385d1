// SPDX-License-Identifier: Apache-2.0
// Grids whose blocks run on several threads: results, faults, and which kernels may not.
#include "agent/softgpu/exec/machine/crew.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "agent/softgpu/exec/testing/machine_fixture.h"

namespace gpuloom::softgpu {
namespace {

// A kernel "k" with one pointer parameter, in %d1, and its block's number in %r1. Every block works long enough
// that others come to help.
std::string TextOf(std::string_view body) {
  std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
      ".visible .entry k(.param .u64 out)\n"
      "{\n.reg .b32 %r<40>; .reg .b64 %d<40>; .reg .pred %p<20>; .reg .f32 %f<9>;\n"
      ".shared .align 4 .b32 s;\n"
      "ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r20, 0;\n"
      "WORK: add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, 2000; @%p9 bra WORK;\n";
  return text.append(body).append("\nret;\n}\n");
}

constexpr uint32_t kBlocks = 600;

class CrewTest : public testing::Test {
 protected:
  // More than the machine may have: they come when they can.
  CrewTest() { Crew::Instance().SetSize(4); }
};

TEST_F(CrewTest, EveryBlockRunsOnce) {
  Machine machine(
      TextOf("mad.wide.u32 %d2, %r1, 4, %d1; ld.global.u32 %r2, [%d2]; add.u32 %r2, %r2, %r1;"
             "st.global.u32 [%d2], %r2; red.global.add.u32 [%d1+2400], 1;"));
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_FALSE(machine.module()->kernels()[0].in_order);
  auto* out = machine.memory.AllocateArray<uint32_t>(kBlocks + 1);
  for (uint32_t round = 1; round <= 5; ++round) {
    const Outcome outcome = machine.Launch("k", {kBlocks}, {1}, out);
    ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
    for (uint32_t i = 0; i < kBlocks; ++i) ASSERT_EQ(out[i], round * i);
    ASSERT_EQ(out[kBlocks], round * kBlocks);
  }
}

TEST_F(CrewTest, TheFaultIsThatOfTheLowestBlock) {
  // From the 300th block on each touches an address of its own that is not there.
  Machine machine(
      TextOf("setp.lt.u32 %p1, %r1, 300; @%p1 bra DONE; mul.wide.u32 %d2, %r1, 4;"
             "add.u64 %d2, %d2, 4096; st.global.u32 [%d2], 1; DONE:"));
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  for (int round = 0; round < 5; ++round) {
    const Outcome outcome = machine.Launch("k", {kBlocks}, {1}, uint64_t{0});
    ASSERT_EQ(outcome.kind, Outcome::kIllegalAddress);
    ASSERT_EQ(outcome.address, 4096 + 300 * 4u);
  }
}

TEST_F(CrewTest, BlocksThatSpeakToEachOtherRunInOrder) {
  // Each takes the next number: the lower block the lower one.
  Machine machine(
      TextOf("atom.global.add.u32 %r2, [%d1], 1; mad.wide.u32 %d2, %r1, 4, %d1;"
             "st.global.u32 [%d2+4], %r2;"));
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  auto* out = machine.memory.AllocateArray<uint32_t>(kBlocks + 1);
  const Outcome outcome = machine.Launch("k", {kBlocks}, {1}, out);
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  for (uint32_t i = 0; i < kBlocks; ++i) ASSERT_EQ(out[i + 1], i);
}

TEST_F(CrewTest, KnowsWhatDependsOnTheOrder) {
  const struct {
    const char* body;
    bool in_order;
  } kKernels[] = {
      {"st.global.u32 [%d1], %r1;", false},
      {"red.global.max.s32 [%d1], %r1;", false},
      {"atom.global.or.b32 %r2, [%d1], %r1;", false},  // nobody reads %r2
      {"atom.global.or.b32 %r2, [%d1], %r1; st.global.u32 [%d1], %r2;", true},
      {"red.global.add.f32 [%d1], 0f3f800000;", true},
      {"red.global.inc.u32 [%d1], %r1;", true},
      {"atom.global.exch.b32 %r2, [%d1], %r1;", true},
      {"red.add.u32 [%d1], 1;", false},
      {"atom.shared.exch.b32 %r2, [s], %r1; st.global.u32 [%d1], %r2;", false},
      {"ld.volatile.shared.u32 %r2, [s];", false},
      {"ld.volatile.global.u32 %r2, [%d1];", true},
      {"ld.acquire.gpu.u32 %r2, [%d1];", true},
      {"st.release.gpu.global.u32 [%d1], 1;", true},
      {"membar.cta;", false},
      {"membar.gl;", true},
      {"fence.acq_rel.cta;", false},
      {"fence.sc.gpu;", true},
      {"{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d1; st.param.b64 [a], "
       "%d1;"
       "call (r), vprintf, (f, a); }",
       true},
  };
  for (const auto& kernel : kKernels) {
    const Machine machine(TextOf(kernel.body));
    ASSERT_NE(machine.module(), nullptr) << machine.error();
    EXPECT_EQ(machine.module()->kernels()[0].in_order, kernel.in_order) << kernel.body;
  }
}

}  // namespace
}  // namespace gpuloom::softgpu
