// SPDX-License-Identifier: Apache-2.0
// Loading PTX: variables, kernels' attributes, and the messages about what is wrong.
#include "agent/softgpu/exec/machine/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "agent/softgpu/exec/testing/machine_fixture.h"

namespace gpuloom::softgpu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

std::string ErrorOf(std::string_view text) {
  Machine machine(std::string(kHead).append(text));
  EXPECT_EQ(machine.module(), nullptr);
  return machine.error();
}

template <class T>
T ValueOf(const Machine& machine, std::string_view name, size_t index = 0) {
  const Global* global = machine.module()->FindGlobal(name);
  T value{};
  std::memcpy(&value, reinterpret_cast<const std::byte*>(global->address) + index * sizeof(T),
              sizeof(T));
  return value;
}

TEST(Module, VariablesHaveTheirInitialValues) {
  Machine machine(std::string(kHead) + R"(
    .global .align 4 .u32 one = 1;
    .visible .global .align 1 .b8 bytes[4] = {1, 0x2, 255, -1};
    .const .align 8 .f64 pi = 0d400921FB54442D18;
    .global .f32 floats[3] = {1.5, 0f40000000, -2.5};
    .global .u64 sum = (1 + 2 * 3) << 4 | 1;
    .global .align 8 .u64 to_bytes = generic(bytes) + 2;
    .global .align 8 .u64 plain[2] = {one, bytes};
    .global .align 16 .b8 unset[100];
    .global .s16 grid[2][3] = {{1, 2, 3}, {4, 5, -6}};
    .global .align 1 .u8 masked[2] = {0xFF(one), 0xFF00(one)};
  )");
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_EQ(ValueOf<uint32_t>(machine, "one"), 1u);
  EXPECT_EQ(ValueOf<uint32_t>(machine, "bytes"), 0xffff0201u);
  EXPECT_EQ(ValueOf<double>(machine, "pi"), 3.141592653589793);
  EXPECT_EQ(ValueOf<float>(machine, "floats", 0), 1.5f);
  EXPECT_EQ(ValueOf<float>(machine, "floats", 1), 2.0f);
  EXPECT_EQ(ValueOf<float>(machine, "floats", 2), -2.5f);
  EXPECT_EQ(ValueOf<uint64_t>(machine, "sum"), 113u);
  EXPECT_EQ(ValueOf<uint64_t>(machine, "to_bytes"),
            machine.module()->FindGlobal("bytes")->address + 2);
  EXPECT_EQ(ValueOf<uint64_t>(machine, "plain", 0), machine.module()->FindGlobal("one")->address);
  EXPECT_EQ(ValueOf<uint8_t>(machine, "unset", 99), 0);
  EXPECT_EQ(ValueOf<int16_t>(machine, "grid", 5), -6);
  EXPECT_EQ(ValueOf<uint8_t>(machine, "masked", 1),
            static_cast<uint8_t>(machine.module()->FindGlobal("one")->address >> 8));
  EXPECT_TRUE(machine.module()->FindGlobal("pi")->constant);
  EXPECT_FALSE(machine.module()->FindGlobal("one")->constant);
  EXPECT_EQ(machine.module()->FindGlobal("unset")->size_bytes, 100u);
  EXPECT_EQ(machine.module()->FindGlobal("nobody"), nullptr);
}

TEST(Module, OfSeveralWeakVariablesTheFirstCounts) {
  Machine machine(std::string(kHead) + R"(
    .weak .global .u32 a = 1;
    .weak .global .u32 a[1048576] = {7, 8};
    .extern .global .u32 a;
    .weak .global .u32 b;
    .weak .global .u32 b = 2;
  )");
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_EQ(ValueOf<uint32_t>(machine, "a"), 1u);
  EXPECT_EQ(machine.module()->FindGlobal("a")->size_bytes, 4u);
  EXPECT_EQ(ValueOf<uint32_t>(machine, "b"), 0u);
}

TEST(Module, ExternalVariablesKeepTheirValues) {
  const auto load = [](std::string_view declarations, uint32_t* outside, std::string* error) {
    return Module::Load(std::string(kHead).append(declarations), [](size_t, size_t) { return 0; },
                        error, nullptr, {{"a", reinterpret_cast<uint64_t>(outside)}});
  };
  uint32_t outside[2] = {5, 6};
  std::string error;
  EXPECT_NE(load(".extern .global .u32 a; .weak .global .u32 a[2] = {7, 8};", outside, &error),
            nullptr)
      << error;
  EXPECT_EQ(outside[0], 5u);
  EXPECT_EQ(outside[1], 6u);
  EXPECT_EQ(load(".extern .global .u32 a[2] = {7, 8};", outside, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("initial values where there can be none"));
  EXPECT_EQ(outside[0], 5u);
}

TEST(Module, KernelsTellTheirShape) {
  Machine machine(std::string(kHead) + R"(
    .const .b8 constants[40];
    .shared .b8 both[64];
    .shared .align 16 .b8 mine[100];
    .visible .entry a(.param .u8 x, .param .u64 y, .param .align 16 .b8 z[20], .param .u32 w)
      .reqntid 16, 4 .reqnctapercluster 2
    { .local .align 8 .b8 depot[24]; .shared .b32 own[8]; .reg .b32 %r<3>; mov.u32 %r1, mine;
      mov.u32 %r2, both; mov.u32 %r2, own; ret; }
    .entry b() .maxntid 256, 1, 1 { .reg .b32 %r; mov.u32 %r, both; ret; }
    .entry c() { ret; }
  )");
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  const Kernel* a = machine.module()->FindKernel("a");
  ASSERT_EQ(a->params.size(), 4u);
  EXPECT_EQ(a->params[1].offset_bytes, 8u);
  EXPECT_EQ(a->params[2].offset_bytes, 16u);
  EXPECT_EQ(a->params[2].size_bytes, 20u);
  EXPECT_EQ(a->params[3].offset_bytes, 36u);
  EXPECT_EQ(a->param_bytes, 40u);
  EXPECT_EQ(a->static_shared_bytes, 64u + 100 + 32);
  EXPECT_EQ(a->local_bytes, 24u);
  EXPECT_EQ(a->const_bytes, 40u);
  EXPECT_EQ(a->max_threads_per_block, 64u);
  EXPECT_EQ(a->required_ntid[1], 4u);
  EXPECT_EQ(a->required_cluster[0], 2u);
  EXPECT_EQ(machine.module()->FindKernel("b")->static_shared_bytes, 64u);
  EXPECT_EQ(machine.module()->FindKernel("b")->max_threads_per_block, 256u);
  EXPECT_EQ(machine.module()->FindKernel("c")->static_shared_bytes, 0u);
  EXPECT_EQ(machine.module()->FindKernel("c")->max_threads_per_block, 1024u);
  EXPECT_EQ(machine.module()->kernels().size(), 3u);
}

TEST(Module, CountsRegistersThatAreAliveTogether) {
  // 40 values one after another need few registers, 40 that are summed at the end all of theirs.
  std::string chain = ".entry chain() { .reg .b32 %r<50>; mov.u32 %r0, 1;";
  std::string fan = ".entry fan() { .reg .b32 %r<50>; .reg .b64 %d; mov.u32 %r0, 1; mov.u64 %d, 1;";
  for (int i = 1; i <= 40; ++i) {
    const std::string to = "%r" + std::to_string(i);
    chain += "add.u32 " + to + ", %r" + std::to_string(i - 1) + ", 1;";
    fan += "mov.u32 " + to + ", " + std::to_string(i) + ";";
  }
  for (int i = 1; i <= 40; ++i) fan += "add.u32 %r0, %r0, %r" + std::to_string(i) + ";";
  fan += "mov.u64 %d, %d;";
  Machine machine(std::string(kHead) + chain + "}" + fan + "}");
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_EQ(machine.module()->FindKernel("chain")->num_regs, 16u);
  EXPECT_EQ(machine.module()->FindKernel("fan")->num_regs, 43u);
}

TEST(Module, RegistersLiveThroughTheLoopsThatNameThem) {
  // 30 values from before a loop, named at its start, are alive when its end needs 10 more.
  std::string text = ".entry k() { .reg .b32 %r<60>; .reg .pred %p; setp.eq.u32 %p, 1, 2;";
  for (int i = 0; i < 30; ++i) text += "mov.u32 %r" + std::to_string(i) + ", 1;";
  text += "L:";
  for (int i = 1; i < 30; ++i) text += "add.u32 %r0, %r0, %r" + std::to_string(i) + ";";
  for (int i = 30; i < 40; ++i) text += "mov.u32 %r" + std::to_string(i) + ", 1;";
  for (int i = 30; i < 40; ++i) text += "add.u32 %r0, %r0, %r" + std::to_string(i) + ";";
  Machine machine(std::string(kHead) + text + "@%p bra L; }");
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  EXPECT_EQ(machine.module()->FindKernel("k")->num_regs, 40u);
}

TEST(Module, UnsupportedInstructionsAreNamedWithTheirLine) {
  EXPECT_EQ(ErrorOf(".entry k()\n{\n  tcgen05.wait::ld.sync.aligned;\n  ret;\n}\n"),
            "ptx line 6: unsupported instruction 'tcgen05.wait::ld.sync.aligned'");
  EXPECT_EQ(ErrorOf(".entry k() { .reg .b32 %r<3>; add.strange.u32 %r1, %r2, 1; ret; }"),
            "ptx line 4: unsupported instruction 'add.strange.u32'");
  EXPECT_EQ(ErrorOf(".entry k() { .reg .b32 %r<3>; add.u32 %r1, %r2; ret; }"),
            "ptx line 4: unsupported instruction 'add.u32'");
  EXPECT_EQ(ErrorOf(".entry k() { .reg .b32 %r<3>; add %r1, %r2, 1; ret; }"),
            "ptx line 4: unsupported instruction 'add'");
}

TEST(Module, MistakesAreNamedWithTheirLine) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {".entry k() { add.u32 %r1, %r1, 1; ret; }", "'%r1' is not declared"},
      {".entry k() { .reg .b32 %r<2>; mov.u32 %r1, %r2; ret; }", "'%r2' is not declared"},
      {".entry k() { .reg .b64 %d<2>; mov.u32 %d1, 1; ret; }", "'%d1' has 64 bits"},
      {".entry k() { .reg .b64 %d<3>; add.u32 %d1, %d2, 1; ret; }", "bits, its instruction"},
      {".entry k() { bra NOWHERE; }", "label 'NOWHERE' is missing"},
      {".entry k() { L: L: ret; }", "label 'L' stands twice"},
      {".entry k() { .reg .b32 %r; @%r ret; }", "'%r' is no predicate"},
      {".entry k() { ret; ", "expected '}', but the text ends here"},
      {".entry k() { ret }", "at '}'"},
      {".entry k(.param .u64 a) { .reg .b32 %r; ld.param.u32 %r, [b]; }", "'b' is not declared"},
      {".entry k(.param .u64 a) { .reg .b32 %r; ld.global.u32 %r, [a]; }", "another state space"},
      {".entry k() { .reg .b32 %r; ld.global.v2.u32 {%r}, [0]; }", "a vector of another size"},
      {".extern .func f(); .entry k() { call f; }", "function 'f' is declared, but not defined"},
      {".func f(.param .b32 a) { ret; } .entry k() { call f; }", "does not fit 'f'"},
      {".func f() { ret; } .func f() { ret; }", "'f' is defined twice"},
      {".global .u32 a; .global .u32 a;", "'a' is declared twice"},
      {".func a() { ret; } .weak .global .u32 a = 1;", "'a' is declared twice"},
      {".global .u32 a; .extern .global .u32 a = 1;", "initial values where there can be none"},
      {".global .b8 a[4294967296][4294967296];", "array too large"},
      {".entry k() { .reg .b8 %x[3]; ret; }", "registers have no arrays"},
      {".entry k() { .reg .v2 .b32 %x; ret; }", "unsupported register type"},
      {".entry k() { .reg .b64 %d<3>; mov.u64 %d2, %d1+8; ret; }", "'%d1' takes no offset"},
      {".entry k() { .reg .b64 %d<3>; mov.u64 %d2+8, %d1; ret; }", "'%d2' takes no offset"},
      {".entry k() { .reg .b32 %r; mov.u32 %r, %tid.x+1; ret; }", "'%tid.x' takes no offset"},
      {".entry k() { .reg .pred %p; .reg .b32 %r; selp.b32 %r, 1, 2, %p+1; ret; }",
       "'%p' takes no offset"},
      {".entry k() { L: bra L+8; }", "'L' takes no offset"},
      {".entry k() { .reg .b64 %d<3>; st.global.v2.b64 [%d0], {%d1, %d2+8}; ret; }",
       "'%d2' takes no offset"},
      {".entry k() { .reg .f64 %d<3>; rcp.rn.ftz.f64 %d1, %d2; ret; }",
       "unsupported instruction 'rcp.rn.ftz.f64'"},
      {".entry k() { .reg .f64 %d<3>; sqrt.rn.ftz.f64 %d1, %d2; ret; }",
       "unsupported instruction 'sqrt.rn.ftz.f64'"},
      {".entry k() { .reg .f64 %d<3>; sqrt.approx.f64 %d1, %d2; ret; }",
       "unsupported instruction 'sqrt.approx.f64'"},
      {".entry k() { .reg .f32 %f<3>; rcp.rn.sat.f32 %f1, %f2; ret; }",
       "unsupported instruction 'rcp.rn.sat.f32'"},
      {".shared .u32 a = 1;", "initial values where there can be none"},
      {".global .u32 a = b;", "'b' is not declared"},
      {".global .u8 a[2] = {1, 2, 3};", "too many initial values"},
      {".global .samplerref t;", "unsupported type '.samplerref'"},
      {".global .u32 a[99999999999999];", "too large"},
      {".global .u32 a = 1/0;", "division overflows"},
      {".shared .b8 a[300000]; ", "too much shared memory"},
      {".entry k() { .shared .b8 a[50000]; ret; }", "48 KiB is the limit"},
      {".entry k() { .local .b8 a[600000]; ret; }", "local memory"},
      {".const .b8 a[70000];", "constant memory"},
      {".entry k(.param .b8 a[40000]) { ret; }", "too large"},
      {".address_size 32", "unsupported address size"},
      {"junk", "unknown directive"},
      {".entry k() { .reg .b32 %r; mov.u32 %r, \"x\"; }", "expected an operand"},
      {"\x01", "unknown directive"},
  };
  for (const auto& test : kCases) {
    const std::string error = ErrorOf(test.text);
    EXPECT_THAT(error, StartsWith("ptx line 4: ")) << test.text;
    EXPECT_THAT(error, HasSubstr(test.message)) << test.text;
  }
  std::string error;
  EXPECT_EQ(Module::Load(
                "", [](size_t, size_t) { return 0; }, &error),
            nullptr);
  EXPECT_THAT(error, HasSubstr("does not begin with .version"));
}

TEST(Module, IsForTheDeviceAndOfALanguageThatTheDriverKnows) {
  const auto error_of = [](const std::string& version, const std::string& target_name,
                           const ptx::Target& target) {
    std::string error;
    (void)Module::Load(
        ".version " + version + "\n.target " + target_name + "\n.address_size 64\n",
        [](size_t, size_t) { return 0; }, &error, nullptr, {}, target);
    return error;
  };
  const ptx::Target old = {75, 82, "driver 535 (CUDA 12.2)"};
  EXPECT_EQ(error_of("8.2", "sm_75", old), "");
  EXPECT_EQ(
      error_of("9.0", "sm_75", old),
      "ptx: its .version is newer than 8.2, all that driver 535 (CUDA 12.2) knows; it is 9.0");
  EXPECT_EQ(error_of("8.2", "sm_80", old), "ptx: made for sm_80, and this device is of sm_75");
  EXPECT_EQ(error_of("9.0\n.target sm_75\n.version 8.2", "sm_75", old),
            "ptx: its .version is newer than 8.2, all that driver 535 (CUDA 12.2) knows; it is "
            "9.0");
  EXPECT_EQ(error_of("8.2", "sm_80\n.version 8.2\n.target sm_75", old),
            "ptx: made for sm_80, and this device is of sm_75");
  EXPECT_EQ(error_of("8.6", "sm_90a", {90}), "");
  EXPECT_EQ(error_of("8.6", "sm_90a", {100}), "ptx: made for sm_90a, and this device is of sm_100");
  EXPECT_EQ(error_of("8.6", "sm_100f", {103}), "");
  EXPECT_EQ(error_of("8.6", "sm_100f", {120}),
            "ptx: made for sm_100f, and this device is of sm_120");
}

TEST(Module, TellsWhenThereIsNoDeviceMemory) {
  std::string error;
  bool out_of_memory = false;
  const std::string text = std::string(kHead) + ".global .u32 a;";
  EXPECT_EQ(Module::Load(
                text, [](size_t, size_t) { return 0; }, &error, &out_of_memory),
            nullptr);
  EXPECT_TRUE(out_of_memory);
  EXPECT_THAT(error, HasSubstr("no device memory"));
}

TEST(Module, DeepNestingIsRefused) {
  const std::string deep(100000, '{');
  EXPECT_THAT(ErrorOf(".entry k() " + deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(".global .u32 a = " + std::string(100000, '(')),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(".global .u32 a = " + std::string(100000, '-')),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(".global .u32 a[9] = " + deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(".entry k() { mov.u32 " + deep), HasSubstr("nested too deeply"));
}

TEST(Module, DebugInformationIsIgnored) {
  Machine machine(std::string(kHead) + R"(
    .file 1 "/a/b.cu"
    .section .debug_str { .b8 1, 2, 3; .b64 4 }
    .pragma "nounroll";
    .visible .entry k()
    {
      .loc 1 10 3
      .reg .b32 %r<2>;
      .loc 1 11 3, function_name $L_str, inlined_at 1 2 3
      mov.u32 %r1, 1; // trailing
      /* several
         lines */
      ret;
    }
  )");
  EXPECT_NE(machine.module(), nullptr) << machine.error();
}

}  // namespace
}  // namespace gpuloom::softgpu
