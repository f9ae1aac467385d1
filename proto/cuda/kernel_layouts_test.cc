// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/kernel_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

using testing::ElementsAre;

constexpr uint64_t kEnough = 1 << 20;
constexpr std::string_view kHead = ".version 8.0\n.target sm_70\n.address_size 64\n";

KernelLayouts Of(std::string_view image, uint64_t limit_bytes = kEnough) {
  return KernelLayouts::Of({reinterpret_cast<const uint8_t*>(image.data()), image.size()},
                           limit_bytes);
}

std::vector<ParamLayout> ParamsOf(const KernelLayouts& layouts, std::string_view name) {
  const auto* params = layouts.Find(name);
  return params != nullptr ? *params : std::vector<ParamLayout>{{~0u, ~0u}};
}

constexpr ParamLayout kUnknown = {~0u, ~0u};

TEST(KernelLayouts, OfText) {
  const std::string text = std::string(kHead) + R"(
    // .entry comment(.param .u32 a)
    .visible .entry none()
    { ret; }
    .entry without_list { ret; }
    .visible .entry k(
      .param .u8 k_param_0,
      .param .u16 k_param_1,
      .param .align 8 .b8 k_param_2[24],
      .param .align 16 .b8 k_param_3[32],
      .param .u64 .ptr .global .align 1 k_param_4,
      .param .u8 k_param_5
    ) .maxntid 128, 1, 1
    { ret; }
    .func (.param .b32 r) f(.param .b64 x) { ret; })";
  const KernelLayouts layouts = Of(text);
  EXPECT_THAT(layouts.Names(), ElementsAre("k", "none", "without_list"));
  EXPECT_THAT(ParamsOf(layouts, "k"),
              ElementsAre(ParamLayout{0, 1}, ParamLayout{2, 2}, ParamLayout{8, 24},
                          ParamLayout{32, 32}, ParamLayout{64, 8}, ParamLayout{72, 1}));
  EXPECT_THAT(ParamsOf(layouts, "none"), ElementsAre());
  EXPECT_THAT(ParamsOf(layouts, "without_list"), ElementsAre());
  EXPECT_EQ(layouts.Find("f"), nullptr);
  EXPECT_EQ(layouts.Find("comment"), nullptr);
}

TEST(KernelLayouts, TextThatNoCompilerWrites) {
  for (const char* list :
       {"(.param .u32 a", "(.param .u32 a,", "(.param .what a)", "(,)", "(.param .u32 a,)",
        "(.param .align 0 .b8 a[4])", "(.param .b8 a[])", "(.param .b8 a[40000])",
        "(.param .b8 a[4294967296])", "(.param .b8 a[20000], .param .b8 b[20000])"}) {
    EXPECT_THAT(ParamsOf(Of(std::string(kHead) + ".entry k" + list), "k"), ElementsAre(kUnknown))
        << list;
  }
  EXPECT_TRUE(Of("").Names().empty());
  EXPECT_TRUE(Of("no image").Names().empty());
}

TEST(KernelLayouts, MembersMustAgree) {
  const std::string one =
      std::string(kHead) + ".entry k(.param .u32 a){} .entry l(.param .u32 a){}";
  const std::string other = std::string(kHead) + ".entry k(.param .u64 a){} .entry m(){}";
  const std::vector<uint8_t> image =
      testing_images::PlainFatbin(FatbinMemberKind::kPtx, {one, other, one});
  const KernelLayouts layouts = KernelLayouts::Of(image, kEnough);
  EXPECT_THAT(layouts.Names(), ElementsAre("k", "l", "m"));
  EXPECT_EQ(layouts.Find("k"), nullptr);
  EXPECT_THAT(ParamsOf(layouts, "l"), ElementsAre(ParamLayout{0, 4}));
  EXPECT_THAT(ParamsOf(layouts, "m"), ElementsAre());
}

TEST(KernelLayouts, KeepNoMoreThanTheLimit) {
  std::string text(kHead);
  for (int i = 0; i < 100; ++i) text += ".entry k" + std::to_string(i) + "(.param .u32 a){}\n";
  EXPECT_EQ(Of(text).Names().size(), 100u);
  const KernelLayouts few = Of(text, 1000);
  EXPECT_EQ(few.Names().size(), 7u);
  EXPECT_LE(few.bytes(), 1000u);
  EXPECT_EQ(few.Find("k99"), nullptr);
}

// A cubin with one section, .nv.info.k.
class CubinWithInfo {
 public:
  explicit CubinWithInfo(const std::vector<uint8_t>& attributes) {
    const std::string names = std::string("\0.shstrtab\0.nv.info.k\0", 22);
    const uint64_t names_at = sizeof(fatbin_internal::ElfHeader);
    const uint64_t info_at = names_at + names.size();
    const uint64_t sections_at = info_at + attributes.size();
    const auto header = testing_images::CubinHeader(sections_at, 3, 1);
    Append(&header, sizeof(header));
    Append(names.data(), names.size());
    Append(attributes.data(), attributes.size());
    fatbin_internal::ElfSection sections[3] = {};
    sections[1].name = 1;
    sections[1].type = 3;
    sections[1].offset = names_at;
    sections[1].size = names.size();
    sections[2].name = 11;
    sections[2].type = 0x70000000;
    sections[2].offset = info_at;
    sections[2].size = attributes.size();
    Append(sections, sizeof(sections));
  }
  std::vector<ParamLayout> Params() const {
    return ParamsOf(KernelLayouts::Of(bytes_, kEnough), "k");
  }

 private:
  void Append(const void* from, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<uint8_t> bytes_;
};

// As ptxas 13.0 writes them, the last parameter first.
const std::vector<uint8_t> kSecond = {4, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0xf0, 0x05, 0};
const std::vector<uint8_t> kFirst = {4, 0x17, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x21, 0};
const std::vector<uint8_t> kLargeFirst = {4, 0x45, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x70, 0x17, 0, 0};
const std::vector<uint8_t> kBehindLarge = {4, 0x45, 12,   0,    0, 0, 0, 0,
                                           1, 0,    0x70, 0x17, 8, 0, 0, 5};
const std::vector<uint8_t> kSomethingElse = {3, 0x1b, 0xff, 0, 4, 0x1c, 4, 0, 1, 2, 3, 4};
const std::vector<uint8_t> kNine = {3, 0x19, 9, 0};
const std::vector<uint8_t> kEight = {3, 0x19, 8, 0};
const std::vector<uint8_t> k6008 = {3, 0x19, 0x78, 0x17};

std::vector<uint8_t> Join(const std::vector<std::vector<uint8_t>>& parts) {
  std::vector<uint8_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(KernelLayouts, OfMachineCode) {
  EXPECT_THAT(CubinWithInfo(Join({kSomethingElse, kSecond, kFirst, kNine})).Params(),
              ElementsAre(ParamLayout{0, 8}, ParamLayout{8, 1}));
  EXPECT_THAT(CubinWithInfo(Join({kBehindLarge, kLargeFirst, k6008})).Params(),
              ElementsAre(ParamLayout{0, 6000}, ParamLayout{6000, 8}));
  EXPECT_THAT(CubinWithInfo(kSomethingElse).Params(), ElementsAre());
}

TEST(KernelLayouts, MachineCodeThatContradictsItself) {
  for (const auto& attributes : {Join({kFirst, kSecond}),                   // of no size
                                 Join({kFirst, kSecond, kEight}),           // larger than all
                                 Join({kFirst, kNine}),                     // smaller
                                 Join({kSecond, kNine}),                    // without the first
                                 Join({kFirst, kFirst, kEight}),            // twice
                                 Join({kFirst, kEight, kNine}),             // of two sizes
                                 Join({kFirst, kEight, {4, 0x17, 12, 0}}),  // cut off
                                 Join({kFirst, kEight, {4, 0x17, 4, 0, 1, 2, 3, 4}})}) {
    EXPECT_THAT(CubinWithInfo(attributes).Params(), ElementsAre(kUnknown));
  }
}

}  // namespace
}  // namespace gpuloom
