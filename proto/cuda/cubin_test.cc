// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/cubin.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "proto/cuda/testing/images.h"

namespace gpuloom {
namespace {

// Names, a table of two symbols, and code without content.
struct File {
  fatbin_internal::ElfHeader header =
      testing_images::CubinHeader(offsetof(File, sections), 4, /*section_names=*/1);
  Cubin::Section sections[4] = {};
  char names[16] = "\0.text.k\0k";
  Cubin::Symbol symbols[2] = {};

  File() {
    sections[1] = {0, 3, 0, 0, offsetof(File, names), sizeof(names), 0, 0, 1, 0};
    sections[2] = {0, 2, 0, 0, offsetof(File, symbols), sizeof(symbols), 1, 0, 8, 24};
    sections[3] = {1, 8, 6, 0, uint64_t{1} << 40, 128, 0, 0, 128, 0};
    symbols[1].name = 9;
    symbols[1].value = 7;
  }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(this), sizeof(*this)};
  }
};

TEST(Cubin, HasSectionsNamesAndSymbols) {
  const File file;
  Cubin cubin;
  ASSERT_TRUE(cubin.Open(file.bytes()));
  ASSERT_EQ(cubin.section_count(), 4u);
  EXPECT_EQ(cubin.NameOf(cubin.SectionAt(0)), "");
  EXPECT_EQ(cubin.NameOf(cubin.SectionAt(3)), ".text.k");
  EXPECT_FALSE(cubin.IsInBounds(cubin.SectionAt(3))) << "it has no content";
  const Cubin::Section table = cubin.SectionAt(2);
  ASSERT_TRUE(Cubin::IsSymbols(table));
  ASSERT_EQ(cubin.SymbolCount(table), 2u);
  const Cubin::Symbol symbol = cubin.SymbolAt(table, 1);
  EXPECT_EQ(symbol.value, 7u);
  EXPECT_EQ(cubin.NameIn(cubin.SectionAt(table.link), symbol.name), "k");
}

TEST(Cubin, WhatLiesOutsideIsAbsent) {
  File file;
  file.sections[3].name = sizeof(file.names);
  Cubin cubin;
  ASSERT_TRUE(cubin.Open(file.bytes()));
  EXPECT_EQ(cubin.NameOf(cubin.SectionAt(3)), std::nullopt);
  EXPECT_EQ(cubin.NameIn(cubin.SectionAt(3), 0), std::nullopt) << "names without content";
  EXPECT_EQ(cubin.SymbolCount(cubin.SectionAt(3)), 0u);
  // The last name need not end.
  std::memset(file.names, 'x', sizeof(file.names));
  EXPECT_EQ(cubin.NameIn(cubin.SectionAt(1), sizeof(file.names) - 3), "xxx");
  file.header.section_names = 4;
  ASSERT_TRUE(cubin.Open(file.bytes()));
  EXPECT_EQ(cubin.NameOf(cubin.SectionAt(1)), std::nullopt);
}

TEST(Cubin, IsNotJustAnyBytes) {
  File file;
  Cubin cubin;
  EXPECT_FALSE(cubin.Open({}));
  EXPECT_FALSE(cubin.Open(file.bytes().first(sizeof(file) - 1))) << "cut off";
  file.sections[2].offset = UINT64_MAX - 8;
  EXPECT_FALSE(cubin.Open(file.bytes()));
  EXPECT_EQ(cubin.section_count(), 0u);
  constexpr std::string_view kPtx = ".version 8.0\n";
  EXPECT_FALSE(cubin.Open({reinterpret_cast<const uint8_t*>(kPtx.data()), kPtx.size()}));
}

}  // namespace
}  // namespace gpuloom
