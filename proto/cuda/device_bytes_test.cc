// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/device_bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

TEST(DeviceBytes, OfPtxVariables) {
  const std::string head = ".version 8.0\n.target sm_90\n.address_size 64\n";
  const std::pair<const char*, uint64_t> texts[] = {
      {"", 0},
      {".global .u32 x;", 4},
      {".visible .global .align 8 .f64 x;", 8},
      {".const .b8 table[1000];", 1000},
      {".global .align 4 .b8 x[1572864000];", 1572864000},
      {".global .v4 .f32 x[10];", 160},
      {".global .u16 x[2][3], y, z[4] = {1, 2, 3, 4};", 12 + 2 + 8},
      {".global .u32 x[] = {1, 2, 3};", 12},
      {".global .u32 x[][2] = {{1, 2}, {3, 4}};", 32},
      {".global .b8 x[0x10], y[010], z[0b100], w[5U];", 16 + 8 + 4 + 5},
      {".global/**/.u32\fx;", 4},
      {".extern .global .u32 x[100];", 0},
      {".extern .global .u32 x; .global .u32 y;", 4},
      {".global .texref t;", 0},
      {".entry k(.param .u64 .ptr .global .align 8 p) { .reg .u32 %r; ld.global.u32 %r, [p]; }", 0},
      {".entry k() { .global .u32 inside; ret; }", 4},
      {".shared .b8 s[100000]; .local .b8 l[100000];", 0},
      {".global .u32", 4},
      {".global .u32 x[18446744073709551615];", UINT64_MAX},
      {".global .u32 x[99999999999999999999999];", UINT64_MAX},
      {".global .u64 x[9223372036854775807]; .global .u64 y[9223372036854775807];", UINT64_MAX},
      {".global .u32 x[;", 4},
      {".global ;.global {", 0},
      {".global .attribute(.managed) .align 8 .b8 x[24];", 24},
      {".global .attribute(.unified(19,95)) .f32 f;", 4},
  };
  for (const auto& [text, bytes] : texts) {
    EXPECT_EQ(PtxVariableBytes(head + text), bytes) << text;
  }
}

// ptxas 13.0 takes each of the first eight and makes that many bytes, or a few less, of it.
TEST(DeviceBytes, Malicious_LargePtxVariablesThatLookSmall) {
  const std::string head = ".version 9.0\n.target sm_90\n.address_size 64\n";
  const std::pair<const char*, uint64_t> texts[] = {
      {".global .f16x2 x[1000];", 4000},
      {".const .f16x2 x[1000];", 4000},
      {".global .b8 x[1000][WARP_SZ];", 32000},
      {".global .align 16777216 .b8 x; .global .align 0x1000000 .b8 y;", 2 * 16777216},
      {".global .align 16777216 .b8 x, y, z;", 3 * 16777216},
      {".global .align WARP_SZ .b8 x, y;", 64},
      {".global .b8 x<1000>;", 1000},
      {".global .b64 x<10>, y;", 88},
      {".global .e5m2x4 x[1000];", 16000},
      {".global .b256 x;", 16},
      {".global .b8 x[1 << 20];", UINT64_MAX},
      {".global .b8 x[SIZE];", UINT64_MAX},
      {".global .align SIZE .b8 x;", UINT64_MAX},
      {".global .align 0 .b8 x;", 1},
  };
  for (const auto& [text, bytes] : texts) {
    EXPECT_EQ(PtxVariableBytes(head + text), bytes) << text;
  }
}

struct TestCubin {
  fatbin_internal::ElfHeader header{};
  fatbin_internal::ElfSection sections[7] = {};
  char names[96] = "\0.text.k\0.nv.global\0.nv.constant3\0.nv.shared.k\0.symtab\0";
  uint8_t code[512] = {};

  TestCubin() {
    header = testing_images::CubinHeader(offsetof(TestCubin, sections), 7, 1);
    sections[1] = {0, 3, 0, 0, offsetof(TestCubin, names), sizeof(names), 0, 0, 1, 0};
    sections[2] = {1, 1, 6, 0, offsetof(TestCubin, code), sizeof(code), 0, 0, 128, 0};  // .text.k
    sections[3] = {9, 8, 3, 0, 0, 1'500'000'000, 0, 0, 4, 0};                 // .nv.global
    sections[4] = {20, 1, 2, 0, offsetof(TestCubin, code), 100, 0, 0, 4, 0};  // .nv.constant3
    sections[5] = {34, 8, 3, 0, 0, 1'000'000, 0, 0, 4, 0};                    // .nv.shared.k
    sections[6] = {47, 2, 0, 0, offsetof(TestCubin, code), 48, 1, 0, 8, 24};  // .symtab
  }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(this), sizeof(*this)};
  }
};

TEST(DeviceBytes, OfACubin) {
  TestCubin cubin;
  EXPECT_EQ(CubinDeviceBytes(cubin.bytes()), 1'500'000'000u + 512 + 100);
  cubin.sections[3].flags = 0;
  EXPECT_EQ(CubinDeviceBytes(cubin.bytes()), 1'500'000'000u + 512 + 100) << "by its name";
  cubin.sections[3].size = UINT64_MAX - 1;
  EXPECT_EQ(CubinDeviceBytes(cubin.bytes()), UINT64_MAX);
  // Names that lie nowhere are none.
  cubin.header.section_names = 200;
  EXPECT_EQ(CubinDeviceBytes(cubin.bytes()), 512u + 100 + 1'000'000);
  EXPECT_EQ(CubinDeviceBytes(cubin.bytes().first(100)), 0u);
}

}  // namespace
}  // namespace gpuloom
