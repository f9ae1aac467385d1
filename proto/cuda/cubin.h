// SPDX-License-Identifier: Apache-2.0
// Reads a cubin, which is an ELF file: its sections, their names and contents, and symbols. For code that needs some of
// them; image_check.h decides whether the file as a whole is sound.
//
// A view of the caller's bytes, which may come from anywhere: nothing outside of them is read, and what lies there is
// reported as absent. All functions are pure and safe from any thread. Offsets and sizes are bytes.
//
//   Cubin cubin;
//   if (!cubin.Open(bytes)) return false;
//   for (uint32_t i = 0; i < cubin.section_count(); ++i) Use(cubin.NameOf(cubin.SectionAt(i)));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

class Cubin {
 public:
  using Section = fatbin_internal::ElfSection;
  using Symbol = fatbin_internal::ElfSymbol;

  // Returns false, and has no sections, if this is not a cubin.
  [[nodiscard]] bool Open(std::span<const uint8_t> bytes) {
    Image image;
    if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone ||
        image.kind != ImageKind::kElf) {
      return false;
    }
    bytes_ = bytes;
    header_ = fatbin_internal::ReadAt<fatbin_internal::ElfHeader>(bytes.data());
    return true;
  }

  // What the code itself says that it was compiled for (90 for 9.0), whatever its member's header says: a byte of the
  // flags, which ABI version 8 (CUDA 13) has moved.
  uint32_t capability() const {
    constexpr size_t kAbiVersion = 8;
    return (header_.ident[kAbiVersion] >= 8 ? header_.flags >> 8 : header_.flags) & 0xff;
  }
  uint32_t section_count() const { return header_.section_count; }
  Section SectionAt(uint32_t i) const {
    return fatbin_internal::ReadAt<Section>(bytes_.data() + header_.section_offset +
                                            uint64_t{i} * header_.section_entry_bytes);
  }
  bool IsInBounds(const Section& section) const {
    return section.offset <= bytes_.size() && section.size <= bytes_.size() - section.offset;
  }

  // The name at `offset` in a table of names.
  std::optional<std::string_view> NameIn(const Section& names, uint64_t offset) const {
    if (!IsInBounds(names) || offset >= names.size) return std::nullopt;
    const std::string_view table(reinterpret_cast<const char*>(bytes_.data()) + names.offset,
                                 names.size);
    const std::string_view name = table.substr(offset);
    return name.substr(0, name.find('\0'));
  }
  // Also nullopt if there are more sections than the header can count.
  std::optional<std::string_view> NameOf(const Section& section) const {
    if (header_.section_names >= header_.section_count) return std::nullopt;
    return NameIn(SectionAt(header_.section_names), section.name);
  }

  static bool IsSymbols(const Section& section) {
    return section.type == fatbin_internal::kElfSectionSymbols;
  }
  // The number of symbols in such a section.
  uint64_t SymbolCount(const Section& table) const {
    return IsInBounds(table) ? table.size / sizeof(Symbol) : 0;
  }
  static uint64_t SymbolOffset(const Section& table, uint64_t i) {
    return table.offset + i * sizeof(Symbol);
  }
  Symbol SymbolAt(const Section& table, uint64_t i) const {
    return fatbin_internal::ReadAt<Symbol>(bytes_.data() + SymbolOffset(table, i));
  }

 private:
  std::span<const uint8_t> bytes_;
  fatbin_internal::ElfHeader header_{};
};

}  // namespace gpuloom
