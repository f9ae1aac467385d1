// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/managed_variables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

using fatbin_internal::ElfHeader;
using fatbin_internal::ElfSection;

struct Symbol {
  uint32_t name;
  uint8_t info;
  uint8_t other;
  uint16_t section;
  uint64_t value;
  uint64_t size;
};

// A cubin with a plain variable and two managed ones: one with an initial value, one without.
struct TestCubin {
  ElfHeader header{};
  ElfSection sections[5] = {};  // none, symbols, names, initial values, zeroes
  Symbol symbols[4] = {};
  char names[32] = "\0plain\0first\0second";
  uint32_t values[2] = {9, 5};

  TestCubin() {
    header = testing_images::CubinHeader(offsetof(TestCubin, sections), 5, 0);
    sections[1] = {0, 2, 0, 0, offsetof(TestCubin, symbols), sizeof(symbols), 2, 0, 8, 24};
    sections[2] = {0, 3, 0, 0, offsetof(TestCubin, names), sizeof(names), 0, 0, 1, 0};
    sections[3] = {0, 1, 0, 0, offsetof(TestCubin, values), sizeof(values), 0, 0, 64, 0};
    sections[4] = {0, 8, 0, 0, sizeof(TestCubin), 1024, 0, 0, 4, 0};
    symbols[1] = {1, 1, 0, 3, 0, 4};
    symbols[2] = {7, 1, 4, 3, 4, 4};
    symbols[3] = {13, 1, 4, 4, 24, 1000};
  }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(this), sizeof(*this)};
  }
};

TEST(ManagedVariables, OfACubin) {
  TestCubin cubin;
  const auto code = [&] {
    return DeviceCode{ImageKind::kElf, {cubin.bytes().begin(), cubin.bytes().end()}};
  };
  ASSERT_TRUE(HasManagedVariables(code()));
  std::vector<ManagedVariable> variables;
  ASSERT_TRUE(ListManagedVariables(cubin.bytes(), &variables));
  ASSERT_EQ(variables.size(), 2u);
  EXPECT_EQ(variables[0].name, "first");
  EXPECT_EQ(variables[0].size_bytes, 4u);
  EXPECT_EQ(variables[0].align_bytes, 64u);
  EXPECT_EQ(variables[0].initial, std::vector<uint8_t>({5, 0, 0, 0}));
  EXPECT_EQ(variables[1].name, "second");
  EXPECT_EQ(variables[1].size_bytes, 1000u);
  EXPECT_TRUE(variables[1].initial.empty());

  ReleaseManagedVariables({reinterpret_cast<uint8_t*>(&cubin), sizeof(cubin)});
  EXPECT_FALSE(HasManagedVariables(code()));
  EXPECT_EQ(cubin.symbols[1].section, 3) << "a plain variable stays where it is";
  for (int i : {2, 3}) {
    EXPECT_EQ(cubin.symbols[i].section, 0);
    EXPECT_EQ(cubin.symbols[i].info, 0x11) << "global, an object";
    EXPECT_EQ(cubin.symbols[i].other, 0);
  }
}

// Small images of which copies would be large.
TEST(ManagedVariables, Malicious_VariablesThatLieOverOneAnother) {
  struct Large {
    ElfHeader header{};
    ElfSection sections[4] = {};  // none, symbols, names, values
    Symbol symbols[1000] = {};
    char names[1000] = {};
    uint8_t values[100'000] = {};
  };
  const auto make = [](uint64_t value_bytes, uint32_t name) {
    auto cubin = std::make_unique<Large>();
    const TestCubin like;
    cubin->header = like.header;
    cubin->header.section_offset = offsetof(Large, sections);
    cubin->header.section_count = 4;
    cubin->sections[1] = {0, 2, 0, 0, offsetof(Large, symbols), sizeof(cubin->symbols),
                          2, 0, 8, 24};
    cubin->sections[2] = {0, 3, 0, 0, offsetof(Large, names), sizeof(cubin->names), 0, 0, 1, 0};
    cubin->sections[3] = {0, 1, 0, 0, offsetof(Large, values), sizeof(cubin->values), 0, 0, 64, 0};
    std::memset(cubin->names, 'n', sizeof(cubin->names) - 1);
    for (Symbol& symbol : cubin->symbols) symbol = {name, 1, 4, 3, 0, value_bytes};
    std::vector<ManagedVariable> variables;
    return ListManagedVariables({reinterpret_cast<const uint8_t*>(cubin.get()), sizeof(Large)},
                                &variables);
  };
  EXPECT_TRUE(make(10, 990));
  EXPECT_FALSE(make(100'000, 990)) << "100 MB of values";
  EXPECT_FALSE(make(10, 1)) << "1 MB of names";
}

TEST(ManagedVariables, Malicious_ADeclarationWithoutAnEnd) {
  std::vector<std::string> names;
  std::string released;
  const std::string begin = ".global .attribute(.managed) .align 4 .b8 x";
  EXPECT_FALSE(ReleaseManagedVariables(begin + std::string(1'000'000, ','), &names, &released));
  std::string values = begin + "[1000000] = {0";
  for (int i = 1; i < 1'000'000; ++i) values += ",0";
  names.clear();
  released.clear();
  ASSERT_TRUE(ReleaseManagedVariables(values + "};\n", &names, &released));
  EXPECT_EQ(names, std::vector<std::string>{"x"});
  EXPECT_LT(released.size(), 100u);
}

TEST(ManagedVariables, Malicious_PartsOutsideOfTheCubin) {
  std::vector<ManagedVariable> variables;
  TestCubin cubin;
  cubin.symbols[2].value = 5;
  EXPECT_FALSE(ListManagedVariables(cubin.bytes(), &variables));
  cubin = {};
  cubin.symbols[2].section = 5;
  EXPECT_FALSE(ListManagedVariables(cubin.bytes(), &variables));
  cubin = {};
  cubin.symbols[3].size = ~uint64_t{0};
  EXPECT_FALSE(ListManagedVariables(cubin.bytes(), &variables));
  cubin = {};
  cubin.sections[1].link = 7;
  EXPECT_FALSE(ListManagedVariables(cubin.bytes(), &variables));
  cubin = {};
  cubin.sections[1].size = sizeof(cubin);
  EXPECT_FALSE(ListManagedVariables(cubin.bytes(), &variables));
  cubin = {};
  cubin.symbols[2].name = 1000;
  variables.clear();
  EXPECT_TRUE(ListManagedVariables(cubin.bytes(), &variables));
  EXPECT_EQ(variables[0].name, "");
}

TEST(ManagedVariables, OfPtx) {
  constexpr std::string_view kText =
      ".version 9.0\n.target sm_90\n"
      ".visible .global .attribute(.managed) .align 4 .u32 counter = 5;\n"
      ".global .align 4 .u32 plain = 9;\n"
      ".global .attribute(.managed) .align 16 .b8 table[1024] = {1, 2};\n";
  std::vector<std::string> names;
  std::string released;
  const DeviceCode code = {ImageKind::kPtx, {kText.begin(), kText.end()}};
  EXPECT_TRUE(HasManagedVariables(code));
  ASSERT_TRUE(ReleaseManagedVariables(kText, &names, &released));
  EXPECT_EQ(names, std::vector<std::string>({"counter", "table"}));
  EXPECT_NE(released.find(".extern .global"), std::string::npos);
  EXPECT_NE(released.find(".u32 counter ;"), std::string::npos) << released;
  EXPECT_NE(released.find(".b8 table[1024] ;"), std::string::npos) << released;
  EXPECT_NE(released.find(".global .align 4 .u32 plain = 9;"), std::string::npos);
  EXPECT_EQ(released.find(".attribute"), std::string::npos);
  EXPECT_EQ(released.find(".visible"), std::string::npos);
}

TEST(ManagedVariables, OfPtxHoweverTheyAreSpelt) {
  for (const std::string_view declaration :
       {".visible.global.attribute( .managed ).align 4 .u32 counter;",
        ".global .attribute/**/(.managed) .align 4 .u32 counter = 5;",
        ".global .align 4 .attribute(.managed) .u32 counter;",
        "// ;\n.weak .global\f.attribute\n(\n.managed\n)\n.u32 counter[2]={1,2};"}) {
    const std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n" +
                             std::string(declaration) + "\n.entry k() { ret; }\n";
    std::vector<std::string> names;
    std::string released;
    EXPECT_TRUE(HasManagedVariables({ImageKind::kPtx, {text.begin(), text.end()}})) << declaration;
    ASSERT_TRUE(ReleaseManagedVariables(text, &names, &released)) << declaration;
    EXPECT_EQ(names, std::vector<std::string>({"counter"})) << declaration;
    EXPECT_NE(released.find(".address_size 64\n"), std::string::npos) << released;
    EXPECT_NE(released.find(".extern .global"), std::string::npos) << released;
    EXPECT_NE(released.find("\n.entry k() { ret; }\n"), std::string::npos) << released;
    for (const char* gone : {".managed", ".visible", ".weak", "="}) {
      EXPECT_EQ(released.find(gone), std::string::npos) << released;
    }
  }
  constexpr std::string_view kComment = ".version 9.0 // .attribute(.managed)\n";
  EXPECT_FALSE(HasManagedVariables({ImageKind::kPtx, {kComment.begin(), kComment.end()}}));
}

TEST(ManagedVariables, Malicious_Ptx) {
  for (const std::string_view text :
       {".attribute(.managed)", "= .attribute(.managed);", ".global.attribute(.managed);",
        "= 1 .global .attribute(.managed) ;", ".attribute(.managed) .global [",
        ".attribute(.managed) .global [;", ".global .attribute(.managed) .u32 a, b;"}) {
    std::vector<std::string> names;
    std::string released;
    EXPECT_FALSE(ReleaseManagedVariables(text, &names, &released)) << text;
  }
}

TEST(ManagedVariables, ChoosesTheCodeThatADriverWould) {
  const auto member = [](FatbinMemberKind kind, uint32_t sm, std::string_view content) {
    FatbinMemberHeader header{};
    header.kind = static_cast<uint16_t>(kind);
    header.header_bytes = sizeof(header);
    header.padded_payload_bytes = content.size();
    header.sm = sm;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    return bytes.append(content);
  };
  const auto fatbin = [](const std::string& body) {
    const FatbinHeader header{kFatbinMagic, 1, sizeof(FatbinHeader), body.size()};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    return bytes.append(body);
  };
  const auto choose = [](const std::string& bytes, DeviceCode* code, bool only_text = false) {
    return ChooseCode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, 90, code,
                      only_text);
  };
  const std::string ptx = member(FatbinMemberKind::kPtx, 52, "old text") +
                          member(FatbinMemberKind::kPtx, 80, "new text") +
                          member(FatbinMemberKind::kPtx, 100, "too new.");
  const std::string foreign = member(FatbinMemberKind::kElf, 80, "for 8.0.") +
                              member(FatbinMemberKind::kElf, 100, "for 10.0");
  DeviceCode code;
  ASSERT_TRUE(choose(fatbin(ptx + foreign), &code));
  EXPECT_EQ(code.kind, ImageKind::kPtx);
  EXPECT_STREQ(reinterpret_cast<const char*>(code.bytes.data()), "new text");
  const std::string cubin = member(FatbinMemberKind::kElf, 90, "for 9.0.");
  ASSERT_TRUE(choose(fatbin(ptx + foreign + cubin), &code));
  EXPECT_EQ(code.kind, ImageKind::kElf);
  EXPECT_EQ(std::string(code.bytes.begin(), code.bytes.end()), "for 9.0.");
  ASSERT_TRUE(choose(fatbin(ptx + foreign + cubin), &code, /*only_text=*/true));
  EXPECT_EQ(code.kind, ImageKind::kPtx);
  EXPECT_STREQ(reinterpret_cast<const char*>(code.bytes.data()), "new text");
  EXPECT_FALSE(choose(fatbin(cubin), &code, /*only_text=*/true));
  EXPECT_FALSE(choose(fatbin(foreign), &code));
}

}  // namespace
}  // namespace gpuloom
