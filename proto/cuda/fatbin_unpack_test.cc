// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/fatbin_unpack.h"

#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <string_view>

#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

constexpr std::string_view kCode =
    ".version 9.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .u64 .ptr .global .align 4 p) { ld.global.u32 %r1, [%rd1]; ret; }\n";
constexpr std::string_view kVariable =
    ".version 9.0\n.target sm_90\n.visible .global .align 4 .u32 counter;\n";
constexpr std::string_view kConstant =
    ".version 9.0\n.target sm_90\n.const .align 4 .b8 table[16];\n";

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

FatbinMember Member(FatbinCompression compression, const std::vector<uint8_t>& payload,
                    size_t uncompressed_bytes) {
  return {FatbinMemberKind::kPtx, compression,       90, 9, 0, 0, payload.data(),
          payload.size(),         uncompressed_bytes};
}

std::vector<uint8_t> Fatbin(const std::vector<std::vector<uint8_t>>& members) {
  std::vector<std::string_view> texts;
  for (const auto& member : members) {
    texts.emplace_back(reinterpret_cast<const char*>(member.data()), member.size());
  }
  return testing_images::PlainFatbin(FatbinMemberKind::kPtx, texts);
}

TEST(UnpackMember, RestoresEachCompression) {
  const auto plain = Bytes(kCode);
  std::vector<uint8_t> lz4(LZ4_compressBound(static_cast<int>(plain.size())));
  lz4.resize(LZ4_compress_default(reinterpret_cast<const char*>(plain.data()),
                                  reinterpret_cast<char*>(lz4.data()),
                                  static_cast<int>(plain.size()), static_cast<int>(lz4.size())));
  std::vector<uint8_t> zstd(ZSTD_compressBound(plain.size()));
  zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), plain.data(), plain.size(), 3));

  std::vector<uint8_t> out;
  std::string error;
  for (const auto& member : {Member(FatbinCompression::kNone, plain, plain.size()),
                             Member(FatbinCompression::kLz4, lz4, plain.size()),
                             Member(FatbinCompression::kZstd, zstd, plain.size())}) {
    ASSERT_TRUE(UnpackMember(member, 1 << 20, &out, &error)) << error;
    EXPECT_EQ(out, plain);
  }
}

TEST(UnpackMember, Malicious_SizesAndBytesAreRefused) {
  const auto garbage = Bytes("this is not compressed at all");
  std::vector<uint8_t> out;
  std::string error;
  EXPECT_FALSE(
      UnpackMember(Member(FatbinCompression::kZstd, garbage, 1000), 1 << 20, &out, &error));
  EXPECT_TRUE(error.starts_with("zstd: ")) << error;
  EXPECT_FALSE(UnpackMember(Member(FatbinCompression::kLz4, garbage, 1000), 1 << 20, &out, &error));
  EXPECT_FALSE(UnpackMember(Member(FatbinCompression::kZstd, garbage, size_t{1} << 60), 1 << 20,
                            &out, &error));
  EXPECT_NE(error.find("limit"), std::string::npos) << error;
}

TEST(HasVariables, TellsCodeFromState) {
  EXPECT_FALSE(HasVariables(Bytes(kCode)));
  EXPECT_TRUE(HasVariables(Bytes(kVariable)));
  EXPECT_TRUE(HasVariables(Bytes(kConstant)));
  EXPECT_FALSE(HasVariables(Fatbin({Bytes(kCode), Bytes(kCode)})));
  EXPECT_TRUE(HasVariables(Fatbin({Bytes(kCode), Bytes(kVariable)})));
}

TEST(HasVariables, WhatCannotBeReadIsNotShared) {
  auto cut = Fatbin({Bytes(kCode)});
  cut.resize(cut.size() / 2);
  EXPECT_TRUE(HasVariables(cut));
  EXPECT_TRUE(HasVariables(Bytes("neither fatbin nor ELF nor PTX")));
  EXPECT_TRUE(HasVariables(std::span<const uint8_t>()));
}

TEST(InspectImage, Malicious_LooksIntoEveryMember) {
  const auto ends = Bytes(std::string(kVariable) + "vprintf" + '\0');
  EXPECT_TRUE(InspectImage(Fatbin({ends, ends})).is_sound);
  // What is known already does not end the look.
  const auto image = Bytes(
      "\x7f"
      "ELF0000");
  const ImageContent content = InspectImage(Fatbin({ends, image}));
  EXPECT_FALSE(content.is_sound);
  EXPECT_TRUE(content.variables && content.prints);
}

TEST(HasVariables, HoweverTheyAreSpelt) {
  const std::string head = ".version 9.0\n.target sm_90\n.address_size 64\n";
  const std::string kernel(kCode.substr(kCode.find(".visible")));
  EXPECT_FALSE(HasVariables(Bytes(head + kernel)));
  EXPECT_TRUE(HasVariables(Bytes(head + ".visible.global.u32 x;\n" + kernel)));
  EXPECT_TRUE(HasVariables(Fatbin({Bytes(head + ".const/**/.u32 x = 4;\n" + kernel)})));
}

// Of a cubin with three sections, the last of which is the names.
template <typename Cubin>
void FillHeader(Cubin* cubin) {
  const auto offset = [&](const void* part) {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(part) -
                                 reinterpret_cast<const uint8_t*>(cubin));
  };
  cubin->header = testing_images::CubinHeader(offset(cubin->sections), 3, 2);
  cubin->sections[2] = {0, 3, 0, 0, offset(cubin->names), sizeof(cubin->names), 0, 0, 1, 0};
}

// What a cubin has for the device is code, or something that is known to be the same for everybody.
TEST(HasVariables, OfACubinWhatIsNotKnownCounts) {
  struct {
    fatbin_internal::ElfHeader header{};
    fatbin_internal::ElfSection sections[3] = {};  // none, one of content, names
    uint32_t content = 7;
    char names[32] = {};
  } cubin;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&cubin);
  const auto offset = [&](const void* part) {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(part) - bytes);
  };
  FillHeader(&cubin);
  constexpr uint64_t kAllocated = 2;
  const auto with = [&](const char* name, uint64_t flags) {
    cubin.sections[1] = {1, 1, flags, 0, offset(&cubin.content), sizeof(cubin.content), 0, 0, 4, 0};
    std::strcpy(cubin.names + 1, name);
    return HasVariables({bytes, sizeof(cubin)});
  };
  for (const char* code :
       {".text.k", ".nv.constant0.k", ".nv.constant2.k", ".nv.constant4", ".nv.shared.k"}) {
    EXPECT_FALSE(with(code, kAllocated)) << code;
  }
  for (const char* state : {".nv.global", ".nv.global.init", ".nv.constant3", ".nv.something"}) {
    EXPECT_TRUE(with(state, kAllocated)) << state;
  }
  EXPECT_FALSE(with(".debug_line", 0)) << "not for the device";
  cubin.header.section_count = 0;
  EXPECT_TRUE(HasVariables({bytes, sizeof(cubin)})) << "or more than the header has room to say";
}

// References are bound by each program for itself.
TEST(HasVariables, ReferencesAreState) {
  EXPECT_TRUE(HasVariables(Bytes(".version 9.0\n.target sm_90\n.global .texref image;\n")));
  struct {
    fatbin_internal::ElfHeader header{};
    fatbin_internal::ElfSection sections[3] = {};  // none, symbols, names
    fatbin_internal::ElfSymbol symbols[2] = {};
    char names[8] = "\0image";
  } cubin;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&cubin);
  const auto offset = [&](const void* part) {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(part) - bytes);
  };
  FillHeader(&cubin);
  cubin.sections[1] = {0, 2, 0, 0, offset(cubin.symbols), sizeof(cubin.symbols), 2, 0, 8, 24};
  constexpr uint8_t kGlobal = 0x10, kFunction = 2, kTexture = 10, kSurface = 12;
  const auto with = [&](uint8_t type) {
    cubin.symbols[1] = {1, static_cast<uint8_t>(kGlobal | type), 0, 0, 0, 0};
    return HasVariables({bytes, sizeof(cubin)});
  };
  EXPECT_FALSE(with(kFunction));
  EXPECT_TRUE(with(kTexture));
  EXPECT_TRUE(with(kSurface));
}

TEST(InspectImage, AnswersBothInOneLook) {
  const auto expect = [](std::span<const uint8_t> image) {
    const ImageContent content = InspectImage(image);
    EXPECT_EQ(content.variables, HasVariables(image));
    EXPECT_EQ(content.prints, MayPrint(image));
  };
  const auto printing = Bytes(std::string(kCode) + "// vprintf\n");
  expect(Bytes(kCode));
  expect(Bytes(kVariable));
  expect(Fatbin({Bytes(kCode), Bytes(kVariable)}));
  expect(Fatbin({Bytes(kVariable), printing}));
  expect(Fatbin({printing, Bytes(kCode)}));
  expect(Bytes("neither fatbin nor ELF nor PTX"));
  expect({});
}

TEST(MayPrint, FindsItInEveryMember) {
  const auto printing = Bytes(
      std::string(kCode) + ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);");
  EXPECT_FALSE(MayPrint(Bytes(kCode)));
  EXPECT_TRUE(MayPrint(printing));
  EXPECT_FALSE(MayPrint(Fatbin({Bytes(kCode), Bytes(kVariable)})));
  EXPECT_TRUE(MayPrint(Fatbin({Bytes(kCode), printing})));
  EXPECT_TRUE(MayPrint(Bytes("neither fatbin nor ELF nor PTX")));
}

}  // namespace
}  // namespace gpuloom
