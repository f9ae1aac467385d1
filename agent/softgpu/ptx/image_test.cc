// SPDX-License-Identifier: Apache-2.0
// Extraction of PTX: which member is taken, how it is unpacked, and what is refused.
#include "agent/softgpu/ptx/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>

#include "agent/softgpu/ptx/hollow.h"
#include "agent/softgpu/ptx/link.h"
#include "proto/cuda/fatbin.h"

namespace gpuloom::softgpu::ptx {
namespace {

using testing::HasSubstr;

std::string Text(int target) {
  return ".version 9.0\n.target sm_" + std::to_string(target) + "\n.address_size 64\n" +
         std::string(300, '\n');
}

enum class Packing { kNone, kLz4, kZstd };

class Fatbin {
 public:
  Fatbin& Add(FatbinMemberKind kind, uint32_t sm, const std::string& content,
              Packing packing = Packing::kNone) {
    std::string payload = content;
    FatbinMemberHeader header{};
    header.kind = static_cast<uint16_t>(kind);
    header.version = 0x101;
    header.header_bytes = sizeof(header);
    header.sm = sm;
    if (packing == Packing::kLz4) {
      payload.resize(static_cast<size_t>(LZ4_compressBound(static_cast<int>(content.size()))));
      payload.resize(static_cast<size_t>(LZ4_compress_default(content.data(), payload.data(),
                                                              static_cast<int>(content.size()),
                                                              static_cast<int>(payload.size()))));
      header.flags = kFatbinFlagLz4;
    } else if (packing == Packing::kZstd) {
      payload.resize(ZSTD_compressBound(content.size()));
      payload.resize(
          ZSTD_compress(payload.data(), payload.size(), content.data(), content.size(), 1));
      header.flags = kFatbinFlagZstd;
    }
    if (packing != Packing::kNone) {
      header.compressed_bytes = static_cast<uint32_t>(payload.size());
      header.uncompressed_bytes = content.size();
    }
    payload.resize((payload.size() + 8) / 8 * 8);
    header.padded_payload_bytes = payload.size();
    body_.append(reinterpret_cast<const char*>(&header), sizeof(header)).append(payload);
    return *this;
  }
  [[nodiscard]] std::string Bytes() const {
    const FatbinHeader header{kFatbinMagic, 1, sizeof(FatbinHeader), body_.size()};
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + body_;
  }

 private:
  std::string body_;
};

struct Extracted {
  std::string text;
  std::string error;
};

Extracted From(const std::string& bytes, const Target& target = {}) {
  // In a block of exactly its size, so that a sanitizer sees reads behind it.
  const std::vector<std::byte> copy(
      reinterpret_cast<const std::byte*>(bytes.data()),
      reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
  Extracted result;
  result.text = Extract(copy, target, &result.error);
  return result;
}

TEST(Image, TakesTextAsItIs) {
  EXPECT_EQ(From(Text(90)).text, Text(90));
  EXPECT_EQ(From("// comment\n" + Text(90)).text, "// comment\n" + Text(90));
}

TEST(Image, TakesTheHighestTargetThatItCanRun) {
  Fatbin fatbin;
  fatbin.Add(FatbinMemberKind::kElf, 90, "machine code")
      .Add(FatbinMemberKind::kPtx, 75, Text(75))
      .Add(FatbinMemberKind::kPtx, 90, Text(90))
      .Add(FatbinMemberKind::kPtx, 80, Text(80))
      .Add(FatbinMemberKind::kPtx, 100, Text(100));
  EXPECT_EQ(From(fatbin.Bytes()).text, Text(90));
}

std::string TextFor(const std::string& target) {
  return ".version 8.6\n.target " + target + "\n.address_size 64\n";
}

TEST(Image, TakesWhatTheDeviceCanRun) {
  Fatbin fatbin;
  fatbin.Add(FatbinMemberKind::kPtx, 75, TextFor("sm_75"))
      .Add(FatbinMemberKind::kPtx, 90, TextFor("sm_90a"))
      .Add(FatbinMemberKind::kPtx, 100, TextFor("sm_100f, debug"));
  const std::pair<uint32_t, const char*> devices[] = {
      {75, "sm_75"},           {89, "sm_75"},           {90, "sm_90a"},
      {100, "sm_100f, debug"}, {103, "sm_100f, debug"}, {120, "sm_75"}};
  for (const auto& [capability, target] : devices) {
    EXPECT_EQ(From(fatbin.Bytes(), {capability}).text, TextFor(target)) << capability;
  }
  Fatbin specific;
  specific.Add(FatbinMemberKind::kPtx, 90, TextFor("sm_90a"));
  EXPECT_THAT(From(specific.Bytes(), {120}).error,
              HasSubstr("no PTX for compute_120 or lower, which is all that softgpu runs; it holds "
                        "compute_90. Compile with -gencode arch=compute_120,code=compute_120"));
}

TEST(Image, MachineCodeRunsOnLaterDevicesOfItsMajorNumber) {
  EXPECT_TRUE(IsMachineCodeFor(80, {86}));
  EXPECT_TRUE(IsMachineCodeFor(86, {86}));
  EXPECT_FALSE(IsMachineCodeFor(89, {86}));
  EXPECT_FALSE(IsMachineCodeFor(75, {86}));
  EXPECT_FALSE(IsMachineCodeFor(80, {90}));
}

TEST(Image, UnpacksBothCompressions) {
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    EXPECT_EQ(From(Fatbin().Add(FatbinMemberKind::kPtx, 90, Text(90), packing).Bytes()).text,
              Text(90));
  }
}

TEST(Image, FollowsAProgramsWrapper) {
  const std::string bytes =
      Fatbin().Add(FatbinMemberKind::kPtx, 90, Text(90), Packing::kZstd).Bytes();
  FatbinWrapper wrapper{kFatbinWrapperMagic, 1, bytes.data(), nullptr};
  std::string error;
  EXPECT_EQ(ExtractFromProgram(&wrapper, Target{}, &error), Text(90));
  EXPECT_EQ(ExtractFromProgram(bytes.data(), Target{}, &error), Text(90));
  EXPECT_EQ(ExtractFromProgram(Text(80).c_str(), Target{}, &error), Text(80));
  const std::string linked = Fatbin().Bytes();
  const FatbinWrapper without_list{kFatbinWrapperMagic, 2, linked.data(), nullptr};
  EXPECT_EQ(ExtractFromProgram(&without_list, Target{}, &error), "");
  EXPECT_THAT(error, HasSubstr("it holds nothing"));
  // Linked device code: its parts.
  const void* const parts[] = {bytes.data(), bytes.data(), nullptr};
  const FatbinWrapper with_list{kFatbinWrapperMagic, 2, linked.data(), parts};
  EXPECT_EQ(ExtractFromProgram(&with_list, Target{}, &error), Text(90) + "\n" + Text(90) + "\n");
  wrapper.version = 7;
  EXPECT_EQ(ExtractFromProgram(&wrapper, Target{}, &error), "");
  EXPECT_THAT(error, HasSubstr("contradicts itself"));
}

TEST(Image, LinkedTextsKeepTheirOwnNames) {
  const std::string texts[] = {
      ".version 8.0 .target sm_90 .address_size 64\n.global .u32 own = 1;\n"
      ".visible .func (.param .b32 r) f (.param .b32 x) { ld.global.u32 %r1, [own]; ret; }",
      ".version 8.0 .target sm_90 .address_size 64\n.extern .func (.param .b32 r) f (.param .b32 "
      "x);"
      "\n.global .u32 own = 2;\n.visible .global .u32 other = own;"};
  const std::string linked = Link(texts);
  EXPECT_THAT(linked, HasSubstr(".global .u32 own$part0 = 1;"));
  EXPECT_THAT(linked, HasSubstr("[own$part0]"));
  EXPECT_THAT(linked, HasSubstr(".visible .global .u32 other = own$part1;"));
  EXPECT_THAT(linked, HasSubstr(".extern .func (.param .b32 r) f (.param .b32 x);"));
}

TEST(Image, LinkedTextsMayDeclareSeveralNamesAtOnce) {
  const std::string texts[] = {
      ".version 8.0 .target sm_90 .address_size 64\n.global .u32 a, b[2] = {1, 2}, c;\n"
      ".func f(.param .b32 x) { ret; }",
      ".version 8.0 .target sm_90 .address_size 64\n.global .u32 b, c = 1, x;\n"};
  const std::string linked = Link(texts);
  EXPECT_THAT(linked, HasSubstr(".global .u32 a, b$part0[2] = {1, 2}, c$part0;"));
  EXPECT_THAT(linked, HasSubstr(".global .u32 b$part1, c$part1 = 1, x;"));
}

TEST(Image, NamesWhatItCannotRun) {
  Fatbin fatbin;
  fatbin.Add(FatbinMemberKind::kElf, 80, "code").Add(FatbinMemberKind::kPtx, 120, Text(120));
  EXPECT_THAT(From(fatbin.Bytes()).error, HasSubstr("it holds sm_80, compute_120"));
  EXPECT_THAT(From(Fatbin().Bytes()).error, HasSubstr("it holds nothing"));
  std::string cubin(64, '\0');
  const unsigned char ident[5] = {0x7f, 'E', 'L', 'F', 2};
  std::memcpy(cubin.data(), ident, sizeof(ident));
  cubin[18] = static_cast<char>(190);
  EXPECT_THAT(From(cubin).error, HasSubstr("cubin: machine code without PTX"));
  EXPECT_THAT(From("#!/bin/sh").error, HasSubstr("neither a fatbin"));
  EXPECT_THAT(From("").error, HasSubstr("neither a fatbin"));
}

TEST(Image, HollowCodeNeedsMachineCodeOfThisDevice) {
  const std::string text = Text(90);
  EXPECT_EQ(HollowFromProgram(text.c_str(), Target{}), "");
  const auto other = Fatbin().Add(FatbinMemberKind::kElf, 100, "cubin").Bytes();
  EXPECT_EQ(HollowFromProgram(other.data(), Target{}), "");
  const auto broken = Fatbin().Add(FatbinMemberKind::kElf, 90, std::string(200, 'x')).Bytes();
  EXPECT_EQ(HollowFromProgram(broken.data(), Target{}), "");
}

TEST(Image, Malicious_CutAnywhere) {
  const std::string whole =
      Fatbin().Add(FatbinMemberKind::kPtx, 90, Text(90), Packing::kLz4).Bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    const Extracted cut = From(whole.substr(0, length));
    EXPECT_EQ(cut.text, "") << length;
    EXPECT_NE(cut.error, "") << length;
  }
}

TEST(Image, Malicious_SizesThatLie) {
  const std::string whole =
      Fatbin().Add(FatbinMemberKind::kPtx, 90, Text(90), Packing::kZstd).Bytes();
  const auto with = [&](size_t offset, uint64_t value) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + sizeof(FatbinHeader) + offset, &value, sizeof(value));
    return From(bytes);
  };
  const size_t unpacked = offsetof(FatbinMemberHeader, uncompressed_bytes);
  EXPECT_THAT(with(unpacked, uint64_t{1} << 60).error, HasSubstr("more than the limit"));
  EXPECT_THAT(with(unpacked, 10).error, HasSubstr("zstd: "));
  EXPECT_THAT(with(unpacked, 100000).error, HasSubstr("zstd: "));
  EXPECT_NE(with(offsetof(FatbinMemberHeader, padded_payload_bytes), ~uint64_t{0}).error, "");
}

}  // namespace
}  // namespace gpuloom::softgpu::ptx
