// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/image_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

bool IsSoundLinkInput(std::span<const uint8_t> input) {
  return gpuloom::IsSoundLinkInput(input, [](uint64_t) { return true; });
}
bool IsSoundLinkText(std::span<const uint8_t> text) {
  return gpuloom::IsSoundLinkText(text, [](uint64_t) { return true; });
}

using fatbin_internal::ElfHeader;
using fatbin_internal::ElfSection;
using fatbin_internal::ElfSymbol;
using testing_images::CubinHeader;
using testing_images::PlainFatbin;
using Bytes = std::vector<uint8_t>;

// A cubin with one function, one relocation of it and one attribute, laid out by hand.
struct Cubin {
  enum : uint16_t { kNone, kNames, kSymbols, kText, kRelocations, kInfo, kShared, kSections };

  ElfHeader header{};
  ElfSection sections[kSections]{};
  char names[8] = "\0name\0";
  ElfSymbol symbols[2]{};
  uint8_t text[32]{};
  struct {
    uint64_t offset;
    uint64_t type_and_symbol;
    int64_t addend;
  } relocation{8, uint64_t{1} << 32 | 2, 0};
  struct {
    uint8_t form = 4;
    uint8_t kind = 0x2f;
    uint16_t value_bytes = 8;
    uint32_t value[2] = {1, 10};
  } info;

  Cubin() {
    header = CubinHeader(offsetof(Cubin, sections), kSections, kNames);
    Section(kNames, 3, names, sizeof(names));
    Section(kSymbols, 2, symbols, sizeof(symbols));
    sections[kSymbols].link = kNames;
    sections[kSymbols].entry_bytes = sizeof(ElfSymbol);
    Section(kText, 1, text, sizeof(text));
    sections[kText].flags = 6;  // allocated, executable
    Section(kRelocations, 4, &relocation, sizeof(relocation));
    sections[kRelocations].link = kSymbols;
    sections[kRelocations].info = kText;
    sections[kRelocations].flags = 0x40;  // `info` is a section
    sections[kRelocations].entry_bytes = 24;
    Section(kInfo, 0x70000000, &info, sizeof(info));
    sections[kInfo].link = kSymbols;
    // Of memory that the file has none of.
    sections[kShared] = {1, 0x7000000a, 3, 0, 1 << 20, 1 << 20, 0, 0, 16, 0};
    symbols[1] = {1, 0x12, 0, kText, 0, sizeof(text)};
  }

  void Section(int number, uint32_t type, const void* content, uint64_t size) {
    const auto offset = static_cast<uint64_t>(static_cast<const uint8_t*>(content) -
                                              reinterpret_cast<const uint8_t*>(this));
    sections[number] = {1, type, 0, 0, offset, size, 0, 0, 8, 0};
  }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(this), sizeof(*this)};
  }
};

TEST(ImageCheck, TakesACubinThatHangsTogether) {
  const Cubin cubin;
  EXPECT_TRUE(IsSoundCubin(cubin.bytes()));
  EXPECT_TRUE(IsSoundLinkInput(cubin.bytes()));
}

// Each of these made driver 580.159.04 crash, divide by zero or never come back, somewhere.
TEST(ImageCheck, Malicious_WhatLeadsNowhereIsRefused) {
  struct Damage {
    const char* what;
    void (*apply)(Cubin*);
  };
  const Damage kDamages[] = {
      {"no sections", [](Cubin* c) { c->header.section_count = 0; }},
      {"sections outside", [](Cubin* c) { c->header.section_offset = 1 << 30; }},
      {"sections that overflow", [](Cubin* c) { c->header.section_offset = UINT64_MAX - 8; }},
      {"smaller sections", [](Cubin* c) { c->header.section_entry_bytes = 32; }},
      {"other header", [](Cubin* c) { c->header.header_bytes = 0; }},
      {"big-endian", [](Cubin* c) { c->header.ident[5] = 2; }},
      {"another machine", [](Cubin* c) { c->header.machine = 62; }},
      {"another type", [](Cubin* c) { c->header.type = 3; }},
      {"a first section that is linked", [](Cubin* c) { c->sections[0].link = 0x7fffffff; }},
      {"a first section that is one", [](Cubin* c) { c->sections[0].size = 1; }},
      {"another section that is none", [](Cubin* c) { c->sections[Cubin::kText].type = 0; }},
      {"a section with an address", [](Cubin* c) { c->sections[Cubin::kText].address = 1; }},
      {"code of no symbol", [](Cubin* c) { c->sections[Cubin::kText].info = 2; }},
      {"memory of no section", [](Cubin* c) { c->sections[Cubin::kShared].info = 77; }},
      {"a symbol that is a name", [](Cubin* c) { c->symbols[1].section = Cubin::kNames; }},
      {"an attribute of no symbol", [](Cubin* c) { c->info.value[0] = 2; }},
      {"names that are none", [](Cubin* c) { c->header.section_names = Cubin::kText; }},
      {"names beyond", [](Cubin* c) { c->header.section_names = Cubin::kSections; }},
      {"segments outside",
       [](Cubin* c) {
         c->header.program_count = 1;
         c->header.program_entry_bytes = 56;
         c->header.program_offset = sizeof(*c);
       }},
      {"a section outside", [](Cubin* c) { c->sections[Cubin::kText].offset = sizeof(*c); }},
      {"a section too long", [](Cubin* c) { c->sections[Cubin::kText].size = sizeof(*c); }},
      {"more memory than there is",
       [](Cubin* c) { c->sections[Cubin::kShared].size = uint64_t{1} << 50; }},
      {"a section without a name", [](Cubin* c) { c->sections[Cubin::kText].name = 100; }},
      {"aligned to nothing", [](Cubin* c) { c->sections[Cubin::kText].align = 0; }},
      {"aligned to 3", [](Cubin* c) { c->sections[Cubin::kText].align = 3; }},
      {"linked to none", [](Cubin* c) { c->sections[Cubin::kRelocations].link = 77; }},
      {"for no section", [](Cubin* c) { c->sections[Cubin::kRelocations].info = 77; }},
      {"attributes of no section", [](Cubin* c) { c->sections[Cubin::kInfo].info = 0xe9000000; }},
      {"relocations of another size",
       [](Cubin* c) { c->sections[Cubin::kRelocations].entry_bytes = 8; }},
      {"a relocation outside", [](Cubin* c) { c->relocation.offset = sizeof(c->text); }},
      {"a relocation to no symbol",
       [](Cubin* c) { c->relocation.type_and_symbol = uint64_t{2} << 32; }},
      {"symbols of another size", [](Cubin* c) { c->sections[Cubin::kSymbols].entry_bytes = 16; }},
      {"half a symbol", [](Cubin* c) { c->sections[Cubin::kSymbols].size -= 8; }},
      {"a symbol without a name", [](Cubin* c) { c->symbols[1].name = 8; }},
      {"a name without an end", [](Cubin* c) { std::memset(c->names, 'x', sizeof(c->names)); }},
      {"a symbol of no section", [](Cubin* c) { c->symbols[1].section = Cubin::kSections; }},
      {"a function that is longer", [](Cubin* c) { c->symbols[1].size = 33; }},
      {"a function that begins behind", [](Cubin* c) { c->symbols[1].value = UINT64_MAX; }},
      {"an attribute that is longer", [](Cubin* c) { c->info.value_bytes = 9; }},
      {"an attribute of no form", [](Cubin* c) { c->info.form = 0; }},
  };
  for (const Damage& damage : kDamages) {
    Cubin cubin;
    damage.apply(&cubin);
    EXPECT_FALSE(IsSoundCubin(cubin.bytes())) << damage.what;
  }
}

TEST(ImageCheck, Malicious_AnythingCutShortIsRefused) {
  const Cubin cubin;
  for (size_t bytes = 0; bytes < offsetof(Cubin, info) + sizeof(cubin.info); ++bytes) {
    const Bytes copy(cubin.bytes().begin(), cubin.bytes().begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_FALSE(IsSoundCubin(copy)) << bytes;
  }
}

// 60,000 sections that show the same megabyte would be walked 60,000 times.
TEST(ImageCheck, Malicious_SectionsThatShareTheirContentAreRefused) {
  constexpr uint16_t kCount = 60'000;
  constexpr uint64_t kContent = 1 << 20;
  ElfHeader header = Cubin().header;
  header.section_offset = sizeof(header);
  header.section_count = kCount;
  const ElfSection section = {0,        3, 0, 0, sizeof(header) + kCount * sizeof(ElfSection),
                              kContent, 0, 0, 1, 0};
  Bytes file(section.offset + kContent, 'x');
  std::memcpy(file.data(), &header, sizeof(header));
  std::memset(&file[sizeof(header)], 0, sizeof(section));
  for (size_t i = 1; i < kCount; ++i) {
    std::memcpy(&file[sizeof(header) + i * sizeof(section)], &section, sizeof(section));
  }
  EXPECT_FALSE(IsSoundCubin(file));
}

TEST(ImageCheck, Malicious_AttributesOfSymbolsNeedSymbols) {
  Cubin cubin;
  cubin.sections[Cubin::kSymbols].type = 1;
  cubin.sections[Cubin::kRelocations].size = 0;
  cubin.sections[Cubin::kText].flags = 0;
  EXPECT_FALSE(IsSoundCubin(cubin.bytes()));
}

TEST(ImageCheck, Malicious_MembersAreLookedInto) {
  const Cubin cubin;
  const std::string sound(reinterpret_cast<const char*>(&cubin), sizeof(cubin));
  std::string damaged = sound;
  damaged[offsetof(Cubin, header.section_names)] = 77;
  EXPECT_TRUE(IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kElf, {sound})));
  EXPECT_FALSE(IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kElf, {damaged})));
  EXPECT_TRUE(IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kElf, {damaged}, 1u << 30)))
      << "written in a way that is not known here: the driver's to refuse";
  EXPECT_TRUE(IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kPtx, {".version 9.0"})));
  EXPECT_FALSE(IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kPtx, {".version 9.0    "})));
  EXPECT_FALSE(
      IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kPtx, {"\x50\xed\x55\xba .managed"})));
}

TEST(ImageCheck, Malicious_WhatCannotBeAffordedIsNotUnpacked) {
  const Cubin cubin;
  const std::string member(reinterpret_cast<const char*>(&cubin), sizeof(cubin));
  uint64_t asked = 0;
  EXPECT_FALSE(gpuloom::IsSoundLinkInput(PlainFatbin(FatbinMemberKind::kElf, {member}),
                                         [&](uint64_t bytes) { return asked = bytes, false; }));
  EXPECT_EQ(asked, sizeof(cubin));
}

TEST(ImageCheck, TextOnlyHasToBeText) {
  const auto text = [](std::string_view characters) {
    return IsSoundLinkText(
        {reinterpret_cast<const uint8_t*>(characters.data()), characters.size()});
  };
  EXPECT_TRUE(text(""));
  EXPECT_TRUE(text(".version 9.0\n.nonsense"));
  EXPECT_FALSE(text("!<arch>\nmore"));
  EXPECT_FALSE(text("\xb1\x43\x62\x46 and a pointer"));
  EXPECT_FALSE(text(std::string_view("\x50\xed\x55\xba\1\0\x10\0//7\n", 12)));
  EXPECT_FALSE(
      text("\x7f"
           "ELF and more"));
  EXPECT_TRUE(IsSoundLinkText(Cubin().bytes()));
}

std::string Archive(std::string_view member, std::string_view size) {
  std::string header = "member.o/";
  header.resize(48, ' ');
  header += size;
  header.resize(58, ' ');
  return "!<arch>\n" + header + "`\n" + std::string(member);
}

TEST(ImageCheck, Malicious_ArchivesAreWalkedInside) {
  const Cubin cubin;
  const std::string member(reinterpret_cast<const char*>(&cubin), sizeof(cubin));
  const auto sound = [](const std::string& archive) {
    return IsSoundLinkInput({reinterpret_cast<const uint8_t*>(archive.data()), archive.size()});
  };
  EXPECT_TRUE(sound(Archive(member, std::to_string(member.size()))));
  EXPECT_FALSE(sound(Archive(member, std::to_string(member.size() + 1))));
  EXPECT_FALSE(sound(Archive(member, "-1")));
  EXPECT_FALSE(sound(Archive(member, "99999999999999")));
  EXPECT_FALSE(sound(Archive(member, "12x")));
  EXPECT_FALSE(sound(Archive("no object file", "14")));
  EXPECT_FALSE(sound("!<arch>\nshort"));
}

#ifdef GPULOOM_NVCC_IMAGES

Bytes Read(const std::string& name) {
  std::ifstream file(std::string(GPULOOM_NVCC_IMAGES "/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ImageCheck, TakesWhatNvccMakes) {
  for (const char* name : {"plain.fatbin", "lz4.fatbin", "zstd.fatbin", "relocatable.fatbin",
                           "image.cubin", "image.o", "image.a"}) {
    const Bytes image = Read(name);
    ASSERT_FALSE(image.empty()) << name;
    EXPECT_TRUE(IsSoundLinkInput(image)) << name;
  }
}

// Nothing is read outside of what is there, however it is damaged: for the sanitizers.
TEST(ImageCheck, Malicious_DamagedImagesAreReadInside) {
  std::mt19937_64 random(1);
  size_t refused = 0;
  for (const char* name : {"plain.fatbin", "zstd.fatbin", "image.cubin", "image.o", "image.a"}) {
    const Bytes image = Read(name);
    for (int round = 0; round < 2000; ++round) {
      Bytes damaged = image;
      for (int i = 0; i < 3; ++i)
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      if (random() % 8 == 0) damaged.resize(random() % damaged.size());
      refused += IsSoundLinkInput(damaged) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 1000u);
}

#else

TEST(ImageCheck, TakesWhatNvccMakes) {
  GTEST_SKIP() << "nvcc is missing: build with the CUDA Toolkit";
}

#endif

}  // namespace
}  // namespace gpuloom
