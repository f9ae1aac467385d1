// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/system_atomics.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "proto/cuda/cubin.h"
#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

SystemAtomics OfText(std::string_view text) {
  SystemAtomics atomics;
  atomics.Add(FatbinMemberKind::kPtx, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return atomics;
}

// Whether a kernel of these instructions has any.
bool IsFoundIn(std::string_view instructions) {
  return OfText(".visible .entry k(.param .u64 p) { " + std::string(instructions) + " ret; }")
      .MayBeIn("k");
}

TEST(SystemAtomics, OfText) {
  for (const char* one : {
           "atom.sys.global.add.u32 %r1, [%rd1], 1;",
           "@%p1 atom.global.relaxed.sys.cas.b64 %rd2, [%rd1], %rd3, %rd4;",
           "red.release.sys.global.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};",
           "atom.acq_rel.sys.or.b32 %r1, [%rd1], 1;",
           "red.sys.add.u32 [%rd1], 1;",
           "{ // a block\n red /* of */ .sys.add.u32 [%rd1], 1; }",
       }) {
    EXPECT_TRUE(IsFoundIn(one)) << one;
  }
  for (const char* none : {
           "atom.global.add.u32 %r1, [%rd1], 1;",
           "red.gpu.global.add.u32 [%rd1], 1; ld.acquire.sys.u32 %r1, [%rd1];",
           "atom.cta.add.u32 %r1, [%rd1], 1; fence.sc.sys; membar.sys; st.release.sys.u32 [%rd1], "
           "1;",
           "atom.sys.shared.add.u32 %r1, [%r2], 1; red.sys.shared::cta.add.u32 [%r2], 1;",
           "multimem.red.relaxed.sys.global.add.u32 [%rd1], 1;",
           "// atom.sys.add.u32 %r1, [%rd1], 1;\n.pragma \"red.sys.add\";",
           "atom: bra red; red: bra atom;",
       }) {
    EXPECT_FALSE(IsFoundIn(none)) << none;
  }
}

TEST(SystemAtomics, AreThoseOfTheKernelsThatHaveThem) {
  const SystemAtomics atomics = OfText(
      ".version 8.0 .target sm_90 .visible .entry before() { ret; } .entry has { red.sys.add.u32 "
      "[%rd1], 1; } .func f() { atom.gpu.add.u32 %r1, [%rd1], 1; ret; } .entry behind { ret; }");
  EXPECT_FALSE(atomics.MayBeIn("before"));
  EXPECT_TRUE(atomics.MayBeIn("has"));
  EXPECT_FALSE(atomics.MayBeIn("behind"));
  EXPECT_FALSE(atomics.MayBeIn("f"));
}

TEST(SystemAtomics, AnyKernelMayCallAFunctionThatHasThem) {
  const SystemAtomics atomics = OfText(
      ".entry before { ret; } .func f() { red.sys.add.u32 [%rd1], 1; } .entry behind { ret; }");
  EXPECT_TRUE(atomics.MayBeIn("before"));
  EXPECT_TRUE(atomics.MayBeIn("behind"));
}

TEST(SystemAtomics, AllKernelsCountBeyondTheLimit) {
  std::string text;
  for (size_t i = 0; i < SystemAtomics::kMostKernels; ++i) {
    text += ".entry k" + std::to_string(i) + " { red.sys.add.u32 [%rd1], 1; }\n";
  }
  EXPECT_TRUE(OfText(text).MayBeIn("k7"));
  EXPECT_FALSE(OfText(text).MayBeIn("other"));
  text += ".entry one_more { red.sys.add.u32 [%rd1], 1; }";
  EXPECT_TRUE(OfText(text).MayBeIn("k7"));
  EXPECT_TRUE(OfText(text).MayBeIn("other"));
}

// A cubin of two functions: `k` is a kernel, the other one is `f` or a kernel, too.
struct File {
  static constexpr size_t kInstructions = 2;
  fatbin_internal::ElfHeader header =
      testing_images::CubinHeader(offsetof(File, sections), 6, /*section_names=*/1);
  Cubin::Section sections[6] = {};
  char names[64] = "\0.text.k\0.text.f\0.nv.constant0.k\0.nv.constant0.f";
  uint64_t kernel[2 * kInstructions] = {};
  uint64_t function[2 * kInstructions] = {};

  File() {
    sections[1] = {0, 3, 0, 0, offsetof(File, names), sizeof(names), 0, 0, 1, 0};
    sections[2] = {1, 1, 6, 0, offsetof(File, kernel), sizeof(kernel), 0, 0, 128, 0};
    sections[3] = {9, 1, 6, 0, offsetof(File, function), sizeof(function), 0, 0, 128, 0};
    sections[4] = {17, 1, 2, 0, 0, 0, 0, 0, 4, 0};
  }
  void MakeBothKernels() { sections[5] = {33, 1, 2, 0, 0, 0, 0, 0, 4, 0}; }
  SystemAtomics Find() const {
    SystemAtomics atomics;
    atomics.Add(FatbinMemberKind::kElf, {reinterpret_cast<const uint8_t*>(this), sizeof(*this)});
    return atomics;
  }
  bool Found() const { return Find().MayBeIn("k"); }
};

// RED.E.ADD.STRONG.SYS and .GPU, as ptxas writes them for 9.0; for 7.5 the former's scope is another code.
constexpr uint64_t kRed = 0x000000020200798e;
constexpr uint64_t kSystem = uint64_t{10} << 13;
constexpr uint64_t kDevice = uint64_t{7} << 13;
constexpr uint64_t kTuringSystem = uint64_t{11} << 13;
constexpr uint64_t kTuringDevice = uint64_t{10} << 13;
constexpr uint64_t kStore = 0x0000000502007986;

TEST(SystemAtomics, OfMachineCode) {
  File file;
  EXPECT_FALSE(file.Found());
  file.kernel[2] = kRed;
  file.kernel[3] = kDevice;
  EXPECT_FALSE(file.Found());
  file.kernel[3] = kSystem;
  EXPECT_TRUE(file.Found());
  EXPECT_FALSE(file.Find().MayBeIn("f"));
  file.kernel[2] = kStore;
  EXPECT_FALSE(file.Found());
}

TEST(SystemAtomics, OfMachineCodeForOlderDevices) {
  File file;
  file.header.ident[8] = 7;
  file.header.flags = 75;
  file.kernel[2] = kRed;
  file.kernel[3] = kTuringDevice;
  EXPECT_FALSE(file.Found());
  file.kernel[3] = kTuringSystem;
  EXPECT_TRUE(file.Found());
  // Instructions of 64 bits, which are not understood.
  file.header.flags = 61;
  EXPECT_FALSE(file.Found());
}

TEST(SystemAtomics, AnyKernelMayCallMachineCodeThatIsNoKernel) {
  File file;
  file.function[0] = kRed;
  file.function[1] = kSystem;
  EXPECT_TRUE(file.Found());
  file.MakeBothKernels();
  EXPECT_FALSE(file.Found());
  EXPECT_TRUE(file.Find().MayBeIn("f"));
}

TEST(SystemAtomics, Malicious_CodeThatLiesElsewhere) {
  File file;
  file.kernel[2] = kRed;
  file.kernel[3] = kSystem;
  file.sections[2].size = sizeof(File);
  EXPECT_FALSE(file.Found()) << "it goes beyond the file";
  file.sections[2].size = sizeof(File::kernel) - 1;
  EXPECT_FALSE(file.Found()) << "it ends within an instruction";
  // One on the other, which would be looked through as often as there are.
  file.kernel[2] = 0;
  for (uint32_t i = 2; i < 4; ++i) {
    file.sections[i].offset = 0;
    file.sections[i].size = sizeof(File);
  }
  EXPECT_TRUE(file.Find().MayBeIn("whatever"));
}

#ifdef GPULOOM_NVCC_IMAGES
std::string ReadImage(const std::string& name) {
  std::ifstream file(GPULOOM_NVCC_IMAGES "/" + name, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_FALSE(bytes.empty()) << name;
  return bytes;
}

void ExpectFoundInSystemScopeOnly(const SystemAtomics& atomics, const std::string& image) {
  for (const std::string operation : {"add", "swap", "quiet", "wide", "anywhere", "swap_anywhere",
                                      "real", "quiet_real", "real_anywhere"}) {
    EXPECT_TRUE(atomics.MayBeIn(operation + "_sys")) << image << ": " << operation;
    EXPECT_FALSE(atomics.MayBeIn(operation + "_gpu")) << image << ": " << operation;
    EXPECT_FALSE(atomics.MayBeIn(operation + "_cta")) << image << ": " << operation;
  }
  EXPECT_FALSE(atomics.MayBeIn("orders_sys")) << image;
}

TEST(SystemAtomics, OfWhatNvidiasCompilerMakes) {
  ExpectFoundInSystemScopeOnly(OfText(ReadImage("system_atomics.ptx")), "PTX");
  for (const char* capability : {"75", "80", "90", "100", "120"}) {
    const std::string image = ReadImage(std::string("system_atomics_") + capability + ".cubin");
    SystemAtomics atomics;
    atomics.Add(FatbinMemberKind::kElf,
                {reinterpret_cast<const uint8_t*>(image.data()), image.size()});
    ExpectFoundInSystemScopeOnly(atomics, capability);
  }
}
#endif

}  // namespace
}  // namespace gpuloom
