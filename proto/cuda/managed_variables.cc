// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/managed_variables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "proto/cuda/cubin.h"
#include "proto/cuda/ptx_tokens.h"

namespace gpuloom {
namespace {

// STT_OBJECT and STB_GLOBAL of ELF.
constexpr uint8_t kTypeObject = 1;
constexpr uint8_t kBindGlobal = 1;
// nvcc's mark on a managed variable, in a symbol's `other`.
constexpr uint8_t kOtherManaged = 0x04;
// No variable gets a greater alignment, whatever its section claims.
constexpr uint64_t kMostAlignedBytes = 512;
// More than a declaration has without its initial value; bounds what text without an end makes us hold.
constexpr size_t kMaxDeclarationTokens = 256;

// A variable that the cubin defines; section 0 is for those that it only uses.
bool IsManaged(const Cubin::Symbol& symbol) {
  return (symbol.info & 0xf) == kTypeObject && (symbol.other & kOtherManaged) != 0 &&
         symbol.section != 0;
}

// The symbols of a cubin, with their names. None if it has no table of them.
struct Symbols {
  Cubin cubin;
  Cubin::Section table{};
  Cubin::Section names{};

  // Returns false if it is no cubin, or if a part lies outside of it.
  bool Open(std::span<const uint8_t> bytes) {
    if (!cubin.Open(bytes)) return false;
    for (uint32_t i = 0; i < cubin.section_count(); ++i) {
      const Cubin::Section section = cubin.SectionAt(i);
      // The first table counts: a cubin has one.
      if (!Cubin::IsSymbols(section)) continue;
      if (section.link >= cubin.section_count()) return false;
      table = section;
      names = cubin.SectionAt(section.link);
      return cubin.IsInBounds(names);
    }
    return true;
  }
  uint64_t count() const { return cubin.SymbolCount(table); }
  Cubin::Symbol At(uint64_t i) const { return cubin.SymbolAt(table, i); }
};

bool ElfHasManaged(std::span<const uint8_t> bytes) {
  Symbols symbols;
  if (!symbols.Open(bytes)) return false;
  for (uint64_t i = 0; i < symbols.count(); ++i) {
    if (IsManaged(symbols.At(i))) return true;
  }
  return false;
}

// PTX ends at its first NUL.
std::string_view TextOf(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

void EndText(DeviceCode* code) {
  if (code->kind == ImageKind::kPtx) code->bytes.push_back(0);
}

bool IsManagedText(std::string_view ptx) {
  PtxTokens tokens(ptx);
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (token == ".managed") return true;
  }
  return false;
}

struct PtxToken {
  std::string_view text;
  size_t begin;
};

// One statement of PTX, without its semicolon, that declares a managed variable: where the declaration
// begins, its name, and the text that only declares it.
bool Release(std::string_view ptx, std::span<const PtxToken> statement, size_t* begin,
             std::string* name, std::string* released) {
  const auto find = [&](std::string_view text, size_t from) {
    size_t i = from;
    while (i < statement.size() && statement[i].text != text) ++i;
    return i;
  };
  const size_t global = find(".global", 0);
  const size_t attribute = find(".attribute", global);
  const size_t closed = find(")", attribute);
  const size_t equals = find("=", closed);
  // Compilers declare one variable at a time.
  if (closed == statement.size() || find(",", closed) < equals) return false;
  const size_t last = std::min(find("[", closed), equals) - 1;
  const std::string_view word = statement[last].text;
  if (last <= closed || word.front() == '.') return false;
  *name = word;
  const auto is_linkage = [](std::string_view text) {
    return text == ".visible" || text == ".weak" || text == ".extern" || text == ".common";
  };
  size_t first = global;
  while (first != 0 && is_linkage(statement[first - 1].text)) --first;
  *begin = statement[first].begin;
  const size_t end = equals < statement.size()
                         ? statement[equals].begin
                         : statement.back().begin + statement.back().text.size();
  const size_t attribute_begin = statement[attribute].begin;
  const size_t attribute_end = statement[closed].begin + 1;
  // The declaration without its linkage, its attribute and its value.
  *released = ".extern ";
  released->append(ptx.substr(statement[global].begin, attribute_begin - statement[global].begin));
  released->append(ptx.substr(attribute_end, end - attribute_end));
  return true;
}

}  // namespace

bool HasManagedVariables(const DeviceCode& code) {
  if (code.kind == ImageKind::kElf) return ElfHasManaged(code.bytes);
  return code.kind == ImageKind::kPtx && IsManagedText(TextOf(code.bytes));
}

bool ChooseCode(std::span<const uint8_t> bytes, uint32_t capability, DeviceCode* code,
                bool only_text) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) {
    if (only_text && image.kind != ImageKind::kPtx) return false;
    code->kind = image.kind;
    code->bytes.assign(image.bytes, image.bytes + image.size_bytes);
    EndText(code);
    return true;
  }
  std::optional<FatbinMember> cubin, ptx;
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  while (reader.Next(&member)) {
    if (member.sm > capability) continue;
    // Cubins run on later devices of the same generation, PTX on all later ones.
    if (member.kind == FatbinMemberKind::kElf && member.sm / 10 == capability / 10) {
      if (!only_text && (!cubin || member.sm > cubin->sm)) cubin = member;
    } else if (member.kind == FatbinMemberKind::kPtx) {
      if (!ptx || member.sm > ptx->sm) ptx = member;
    }
  }
  if (!cubin && !ptx) return false;
  code->kind = cubin ? ImageKind::kElf : ImageKind::kPtx;
  std::string error;
  if (!UnpackMember(cubin ? *cubin : *ptx, kMaxMemberBytes, &code->bytes, &error)) return false;
  EndText(code);
  return true;
}

bool ListManagedVariables(std::span<const uint8_t> bytes, std::vector<ManagedVariable>* variables) {
  Symbols symbols;
  if (!symbols.Open(bytes)) return false;
  const Cubin& cubin = symbols.cubin;
  uint64_t copied_bytes = 0;  // more than there are: some lie over others
  for (uint64_t i = 0; i < symbols.count(); ++i) {
    const Cubin::Symbol symbol = symbols.At(i);
    if (!IsManaged(symbol)) continue;
    if (symbol.section >= cubin.section_count()) return false;
    const Cubin::Section section = cubin.SectionAt(symbol.section);
    if (symbol.value > section.size || symbol.size > section.size - symbol.value) return false;
    ManagedVariable variable;
    const std::string_view name = cubin.NameIn(symbols.names, symbol.name).value_or("");
    copied_bytes += name.size();
    if (copied_bytes > bytes.size()) return false;
    variable.name = name;
    variable.size_bytes = symbol.size;
    if (std::has_single_bit(section.align)) {
      variable.align_bytes = std::clamp(section.align, variable.align_bytes, kMostAlignedBytes);
    }
    if (!fatbin_internal::HasNoContent(section.type)) {
      if (!cubin.IsInBounds(section)) return false;
      copied_bytes += symbol.size;
      if (copied_bytes > bytes.size()) return false;
      const uint8_t* begin = bytes.data() + section.offset + symbol.value;
      variable.initial.assign(begin, begin + symbol.size);
    }
    variables->push_back(std::move(variable));
  }
  return true;
}

void ReleaseManagedVariables(std::span<uint8_t> bytes) {
  Symbols symbols;
  if (!symbols.Open(bytes)) return;
  for (uint64_t i = 0; i < symbols.count(); ++i) {
    Cubin::Symbol symbol = symbols.At(i);
    if (!IsManaged(symbol)) continue;
    // In place: the cubin keeps its size and layout, and what referred to the symbol refers to it
    // still.
    symbol.info = static_cast<uint8_t>(kBindGlobal << 4 | kTypeObject);
    symbol.other = static_cast<uint8_t>(symbol.other & ~kOtherManaged);
    symbol.section = 0;
    symbol.value = 0;
    std::memcpy(bytes.data() + Cubin::SymbolOffset(symbols.table, i), &symbol, sizeof(symbol));
  }
}

bool ReleaseManagedVariables(std::string_view ptx, std::vector<std::string>* names,
                             std::string* released) {
  PtxTokens tokens(ptx);
  size_t done = 0;
  std::vector<PtxToken> statement;
  bool managed = false;
  bool has_value = false;  // braces in it do not end the statement
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    // A brace begins or ends a function's body and so a statement, too.
    if (token == ";" || (!has_value && (token == "{" || token == "}"))) {
      size_t begin = 0;
      std::string declaration;
      if (managed && !Release(ptx, statement, &begin, &names->emplace_back(), &declaration)) {
        return false;
      }
      if (managed) {
        released->append(ptx.substr(done, begin - done)).append(declaration);
        done = tokens.begin();
      }
      statement.clear();
      managed = has_value = false;
      continue;
    }
    managed |= token == ".managed";
    // The contents of initial values do not matter, and nothing longer than this is a declaration.
    const bool is_value = has_value;
    has_value |= token == "=";
    if (is_value || statement.size() == kMaxDeclarationTokens) continue;
    statement.push_back({token, tokens.begin()});
  }
  released->append(ptx.substr(done));
  // A statement that has no end is not as nvcc makes it.
  return !managed;
}

}  // namespace gpuloom
