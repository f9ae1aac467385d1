// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/elf_file.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace gpuloom {
namespace {

using fatbin_internal::ElfHeader;
using fatbin_internal::ElfSection;
using fatbin_internal::ElfSymbol;
using fatbin_internal::HasNoContent;
using fatbin_internal::kElfAllocated;
using fatbin_internal::kElfSectionSymbols;
using fatbin_internal::ReadAt;

// Types of sections: ELF's own, and CUDA's.
constexpr uint32_t kNull = 0;
constexpr uint32_t kStringTable = 3;
constexpr uint32_t kRelocationsWithAddend = 4;
constexpr uint32_t kNote = 7;
constexpr uint32_t kRelocations = 9;
constexpr uint32_t kCudaInfo = 0x70000000;
constexpr uint32_t kCudaCallGraph = 0x70000001;
constexpr uint32_t kCudaPrototype = 0x70000002;

constexpr uint16_t kExecutableFile = 2;  // a file's type

constexpr uint16_t kFirstReservedSection = 0xff00;

// A program header of ELF's 64-bit form.
struct ElfSegment {
  uint32_t type;
  uint32_t flags;
  uint64_t offset;
  uint64_t address;
  uint64_t physical_address;
  uint64_t file_bytes;
  uint64_t memory_bytes;
  uint64_t align;
};
static_assert(sizeof(ElfSegment) == 56);

// Does not overflow for any values.
bool Fits(uint64_t offset, uint64_t bytes, uint64_t room) {
  return offset <= room && bytes <= room - offset;
}

// More than any device has, and so small that no sum of two overflows.
constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxAlign = uint64_t{1} << 30;
// Flags of a section.
constexpr uint64_t kExecutable = 4;
constexpr uint64_t kInfoIsSection = 0x40;

}  // namespace

// The order matters: each check uses what those before it have found to be so, the tables of names
// above all.
bool ElfFile::IsSound() {
  if (!HeaderIsSound()) return false;
  for (uint32_t i = 0; i < header_.section_count; ++i) {
    sections_.push_back(
        ReadAt<ElfSection>(bytes_.data() + header_.section_offset + i * sizeof(ElfSection)));
  }
  if (!TableIsSound() || !ContentsFit()) return false;
  for (const ElfSection& section : sections_) name_ends_.push_back(NamesEnd(section));
  const auto is_symbols = [](const ElfSection& section) {
    return section.type == kElfSectionSymbols;
  };
  const auto symbols = std::find_if(sections_.begin(), sections_.end(), is_symbols);
  if (symbols != sections_.end()) symbol_count_ = symbols->size / sizeof(ElfSymbol);
  const auto all = [this](bool (ElfFile::*holds)(const ElfSection&) const) {
    return std::all_of(sections_.begin(), sections_.end(),
                       [&](const ElfSection& section) { return (this->*holds)(section); });
  };
  return SegmentsAreSound() && all(&ElfFile::IsInBounds) && all(&ElfFile::ContentIsSound);
}

bool ElfFile::EachNamed(std::string_view name,
                        const std::function<bool(std::span<const uint8_t>)>& take) const {
  for (const ElfSection& section : sections_) {
    if (section.type == kNull || HasNoContent(section.type) || !IsNamed(section, name)) {
      continue;
    }
    if (!take(bytes_.subspan(section.offset, section.size))) return false;
  }
  return true;
}

bool ElfFile::HeaderIsSound() {
  constexpr uint8_t kBegin[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};  // 64 bits, little-endian, version 1
  if (bytes_.size() < sizeof(ElfHeader) ||
      !std::equal(std::begin(kBegin), std::end(kBegin), bytes_.begin())) {
    return false;
  }
  header_ = ReadAt<ElfHeader>(bytes_.data());
  return IsKnownMachine() && header_.header_bytes == sizeof(ElfHeader) &&
         header_.section_count != 0 && header_.section_entry_bytes == sizeof(ElfSection) &&
         Fits(header_.section_offset, header_.section_count * sizeof(ElfSection), bytes_.size()) &&
         (header_.program_count == 0 || header_.program_entry_bytes == sizeof(ElfSegment)) &&
         Fits(header_.program_offset, header_.program_count * sizeof(ElfSegment), bytes_.size()) &&
         header_.section_names < header_.section_count;
}

// Among a host's files, only object files are link inputs.
bool ElfFile::IsKnownMachine() const {
  constexpr uint16_t kRelocatable = 1;
  constexpr uint16_t kX86_64 = 62;
  constexpr uint16_t kAArch64 = 183;
  if (is_cuda()) return header_.type == kRelocatable || header_.type == kExecutableFile;
  return header_.type == kRelocatable &&
         (header_.machine == kX86_64 || header_.machine == kAArch64);
}

bool ElfFile::SegmentsAreSound() const {
  for (uint32_t i = 0; i < header_.program_count; ++i) {
    const auto segment =
        ReadAt<ElfSegment>(bytes_.data() + header_.program_offset + i * sizeof(ElfSegment));
    if (!Fits(segment.offset, segment.file_bytes, bytes_.size()) ||
        segment.file_bytes > segment.memory_bytes || segment.memory_bytes > kMaxMemoryBytes) {
      return false;
    }
  }
  return true;
}

// By ELF's rules the first section is empty, and one section holds the others' names.
bool ElfFile::TableIsSound() const {
  const ElfSection& first = sections_.front();
  return first.type == kNull && first.link == 0 && first.info == 0 && first.offset == 0 &&
         first.size == 0 && first.entry_bytes == 0 &&
         sections_[header_.section_names].type == kStringTable;
}

// Sections overlap only where a few tools share them, so what has to be walked is at most twice
// as long as the file, however many sections there are.
bool ElfFile::ContentsFit() const {
  uint64_t room = 2 * static_cast<uint64_t>(bytes_.size());
  for (const ElfSection& section : sections_) {
    if (HasNoContent(section.type)) continue;
    if (section.size > room) return false;
    room -= section.size;
  }
  return true;
}

// Checks a section's place, its name, and its references to other sections.
bool ElfFile::IsInBounds(const ElfSection& section) const {
  if (section.type == kNull) return &section == &sections_.front();
  if (!HasNoContent(section.type) && !Fits(section.offset, section.size, bytes_.size())) {
    return false;
  }
  const uint64_t align = section.align;
  if (section.size > kMaxMemoryBytes || (align & (align - 1)) != 0 || align > kMaxAlign ||
      section.link >= sections_.size()) {
    return false;
  }
  const bool is_data = (section.flags & (kElfAllocated | kExecutable)) == kElfAllocated;
  const bool info_is_section = (section.flags & kInfoIsSection) != 0 || (is_cuda() && is_data);
  if (info_is_section && section.info >= sections_.size()) return false;
  // The driver divides by it.
  const bool is_aligned = align != 0 || (!(section.flags & kElfAllocated) && section.type != kNote);
  if (is_cuda() && (!is_aligned || section.address != 0)) return false;
  // For code, info holds the function's symbol and the number of registers.
  const bool is_code = is_cuda() && (section.flags & kExecutable) != 0;
  if (is_code && (section.info & 0xffffff) >= SymbolCount(section)) return false;
  return IsName(header_.section_names, section.name);
}

bool ElfFile::ContentIsSound(const ElfSection& section) const {
  switch (section.type) {
    case kElfSectionSymbols:
      return SymbolsAreSound(section);
    case kRelocations:
      return RelocationsAreSound(section, 16);
    case kRelocationsWithAddend:
      return RelocationsAreSound(section, 24);
    case kCudaInfo:
      return !is_cuda() || AttributesAreSound(section);
    case kCudaCallGraph:
    case kCudaPrototype:
      return !is_cuda() || PairsAreSound(section);
    default:
      return true;
  }
}

// A symbol's name, section and place in that section.
bool ElfFile::SymbolsAreSound(const ElfSection& table) const {
  if (table.entry_bytes != sizeof(ElfSymbol) || table.size % sizeof(ElfSymbol) != 0) return false;
  for (uint64_t at = 0; at < table.size; at += sizeof(ElfSymbol)) {
    const auto symbol = ReadAt<ElfSymbol>(bytes_.data() + table.offset + at);
    if (!IsName(table.link, symbol.name)) return false;
    // Absolute or common: not in a section.
    if (symbol.section >= kFirstReservedSection) continue;
    if (symbol.section >= sections_.size()) return false;
    // In sections without content, symbols for debuggers have values with another origin.
    const ElfSection& section = sections_[symbol.section];
    if (section.type == kStringTable || section.type == kElfSectionSymbols) return false;
    const uint64_t begin = HasNoContent(section.type) ? 0 : symbol.value;
    if (symbol.section != 0 &&
        (symbol.value > section.size || !Fits(begin, symbol.size, section.size))) {
      return false;
    }
  }
  return true;
}

// An entry begins with the offset and the symbol with the type; an addend may follow.
bool ElfFile::RelocationsAreSound(const ElfSection& table, uint64_t entry_bytes) const {
  if (table.size == 0) return true;
  if (table.entry_bytes != entry_bytes || table.size % entry_bytes != 0 ||
      table.info >= sections_.size()) {
    return false;
  }
  // Tools that reorder sections leave old numbers here (cuBLAS has such cubins), so then the
  // target is unknown. A host's section may be compressed, and offsets into it refer to the
  // uncompressed content.
  const ElfSection& target = sections_[table.info];
  const bool knows_target = is_cuda() && sections_[table.link].type == kElfSectionSymbols;
  if (knows_target && HasNoContent(target.type)) return false;
  const uint64_t symbol_count = SymbolCount(table);
  for (uint64_t at = 0; at < table.size; at += entry_bytes) {
    const uint8_t* entry = bytes_.data() + table.offset + at;
    // A relocation changes 4 bytes at least.
    if (knows_target && !Fits(ReadAt<uint64_t>(entry), 4, target.size)) return false;
    if (ReadAt<uint64_t>(entry + 8) >> 32 >= symbol_count) return false;
  }
  return true;
}

// Symbols in the table that a section names, or else in the file's first table.
uint64_t ElfFile::SymbolCount(const ElfSection& of) const {
  const ElfSection& table = sections_[of.link];
  return table.type == kElfSectionSymbols ? table.size / sizeof(ElfSymbol) : symbol_count_;
}

// A call graph: pairs of symbols, in which the highest numbers stand for callees without a
// symbol. Or prototypes: pairs of a symbol and a name.
bool ElfFile::PairsAreSound(const ElfSection& section) const {
  constexpr uint32_t kFirstOther = 0xfffffff0;
  if (section.size == 0) return true;
  if (section.entry_bytes != 8 || section.size % 8 != 0) return false;
  const uint64_t symbol_count = SymbolCount(section);
  for (uint64_t at = 0; at < section.size; at += 8) {
    const auto is_symbol = [&](uint32_t number) {
      return number < symbol_count || number >= kFirstOther;
    };
    const uint8_t* pair = bytes_.data() + section.offset + at;
    const auto second = ReadAt<uint32_t>(pair + 4);
    const bool second_is_sound = section.type == kCudaPrototype
                                     ? IsName(sections_[section.link].link, second)
                                     : is_symbol(second);
    if (!is_symbol(ReadAt<uint32_t>(pair)) || !second_is_sound) return false;
  }
  return true;
}

// A sequence of attributes. Each begins with its form, its kind, and two bytes that hold its
// value or the size of the value that follows.
bool ElfFile::AttributesAreSound(const ElfSection& section) const {
  constexpr uint8_t kSized = 4;
  constexpr uint8_t kParameter = 0x17;
  constexpr uint64_t kMaxParameters = 1 << 16;
  if (section.info >= sections_.size()) return false;
  const uint64_t symbol_count = SymbolCount(section);
  for (uint64_t at = 0; at < section.size;) {
    if (!Fits(at, 4, section.size)) return false;
    const uint8_t* attribute = bytes_.data() + section.offset + at;
    const uint8_t form = attribute[0];
    if (form == 0 || form > kSized) return false;
    at += 4;
    // The other forms have their value in the two bytes.
    if (form != kSized) continue;
    const auto value_bytes = ReadAt<uint16_t>(attribute + 2);
    if (!Fits(at, value_bytes, section.size)) return false;
    const uint64_t limit = BeginsWithSymbol(attribute[1]) ? symbol_count
                           : attribute[1] == kParameter   ? kMaxParameters
                                                          : UINT64_MAX;
    if (limit != UINT64_MAX && (value_bytes < 4 || ReadAt<uint32_t>(attribute + 4) >= limit)) {
      return false;
    }
    at += value_bytes;
  }
  return true;
}

// Attributes about a function or variable: its frame, stack, registers or parameters.
bool ElfFile::BeginsWithSymbol(uint8_t attribute) {
  constexpr uint8_t kAttributes[] = {0x0a, 0x11, 0x12, 0x23, 0x2f};
  return std::find(std::begin(kAttributes), std::end(kAttributes), attribute) !=
         std::end(kAttributes);
}

// The end of the last complete name in a table of names; 0 if there is none.
uint64_t ElfFile::NamesEnd(const ElfSection& table) const {
  if (table.type != kStringTable || !Fits(table.offset, table.size, bytes_.size())) return 0;
  const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(table.offset);
  uint64_t end = table.size;
  while (end != 0 && begin[static_cast<ptrdiff_t>(end - 1)] != 0) --end;
  return end;
}

// A name that begins before that place ends inside of the table.
bool ElfFile::IsName(uint32_t table, uint32_t at) const {
  return table < name_ends_.size() && at < name_ends_[table];
}

bool ElfFile::IsNamed(const ElfSection& section, std::string_view name) const {
  const ElfSection& table = sections_[header_.section_names];
  const uint64_t room = table.size - section.name;
  const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + table.offset + section.name;
  // IsInBounds has checked that the name begins in the table.
  return room > name.size() && std::string_view(begin, name.size()) == name &&
         begin[name.size()] == 0;
}

}  // namespace gpuloom
