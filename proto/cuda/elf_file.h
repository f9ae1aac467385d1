// SPDX-License-Identifier: Apache-2.0
// Checks whether a 64-bit ELF file, CUDA's or a host's, is consistent: a part of image_check.h. (cubin.h only looks
// things up in one.) The bytes may come from anywhere: nothing outside of them is read. They must outlive the object.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

class ElfFile {
 public:
  explicit ElfFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // Whether every offset, size, index and name refers to something in the file. Call it once, before anything else.
  [[nodiscard]] bool IsSound();

  bool is_cuda() const { return header_.machine == fatbin_internal::kElfMachineCuda; }

  // Calls `take` with the content of each section of this name, until it returns false, and then returns false. Only
  // for a sound file.
  bool EachNamed(std::string_view name,
                 const std::function<bool(std::span<const uint8_t>)>& take) const;

 private:
  bool HeaderIsSound();
  bool IsKnownMachine() const;
  bool SegmentsAreSound() const;
  bool TableIsSound() const;
  bool ContentsFit() const;
  bool IsInBounds(const fatbin_internal::ElfSection& section) const;
  bool ContentIsSound(const fatbin_internal::ElfSection& section) const;
  bool SymbolsAreSound(const fatbin_internal::ElfSection& table) const;
  bool RelocationsAreSound(const fatbin_internal::ElfSection& table, uint64_t entry_bytes) const;
  uint64_t SymbolCount(const fatbin_internal::ElfSection& of) const;
  bool PairsAreSound(const fatbin_internal::ElfSection& section) const;
  bool AttributesAreSound(const fatbin_internal::ElfSection& section) const;
  static bool BeginsWithSymbol(uint8_t attribute);
  uint64_t NamesEnd(const fatbin_internal::ElfSection& table) const;
  bool IsName(uint32_t table, uint32_t at) const;
  bool IsNamed(const fatbin_internal::ElfSection& section, std::string_view name) const;

  const std::span<const uint8_t> bytes_;
  fatbin_internal::ElfHeader header_{};
  std::vector<fatbin_internal::ElfSection> sections_;
  uint64_t symbol_count_ = 0;  // of the first table of symbols
  std::vector<uint64_t>
      name_ends_;  // of sections that are tables of names: names begin before this
};

}  // namespace gpuloom
