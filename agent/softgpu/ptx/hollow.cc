// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/ptx/hollow.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/image.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom::softgpu::ptx {
namespace {

using fatbin_internal::ElfHeader;
using fatbin_internal::ElfSection;
using fatbin_internal::ElfSymbol;
using fatbin_internal::ReadAt;

constexpr uint8_t kObject = 1;

// A cubin whose every offset lies inside it.
class Cubin {
 public:
  explicit Cubin(std::span<const uint8_t> bytes) : bytes_(bytes) {
    Image image;
    whole_ = FindImage(bytes.data(), bytes.size(), &image) == ImageError::kNone &&
             image.kind == ImageKind::kElf;
    if (whole_) header_ = ReadAt<ElfHeader>(bytes.data());
    whole_ = whole_ && header_.section_names < header_.section_count;
  }

  uint32_t section_count() const { return whole_ ? header_.section_count : 0; }
  ElfSection section(uint32_t i) const {
    return ReadAt<ElfSection>(bytes_.data() + header_.section_offset +
                              uint64_t{i} * header_.section_entry_bytes);
  }
  std::string_view section_name(uint32_t i) const {
    return text(section(header_.section_names), section(i).name);
  }
  std::string_view text(const ElfSection& strings, uint64_t offset) const {
    if (strings.offset > bytes_.size() || strings.size > bytes_.size() - strings.offset ||
        offset >= strings.size) {
      return {};
    }
    const auto* begin = reinterpret_cast<const char*>(bytes_.data() + strings.offset + offset);
    return {begin, strnlen(begin, strings.size - offset)};
  }
  std::vector<ElfSymbol> symbols(const ElfSection& table) const {
    std::vector<ElfSymbol> found(table.size / sizeof(ElfSymbol));
    if (!found.empty()) {
      std::memcpy(found.data(), bytes_.data() + table.offset, found.size() * sizeof(ElfSymbol));
    }
    return found;
  }

 private:
  std::span<const uint8_t> bytes_;
  ElfHeader header_{};
  bool whole_ = false;
};

bool IsPtxName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
  });
}

std::string FromCubin(std::span<const uint8_t> bytes) {
  const Cubin cubin(bytes);
  std::string kernels, variables;
  constexpr std::string_view kCode = ".text.";
  for (uint32_t i = 0; i < cubin.section_count(); ++i) {
    const std::string_view name = cubin.section_name(i);
    if (name.starts_with(kCode) && IsPtxName(name.substr(kCode.size()))) {
      kernels.append(".visible .entry ").append(name.substr(kCode.size())).append("() { ret; }\n");
    }
    const ElfSection table = cubin.section(i);
    if (table.type != fatbin_internal::kElfSectionSymbols || table.link >= cubin.section_count())
      continue;
    for (const ElfSymbol& symbol : cubin.symbols(table)) {
      if ((symbol.info & 15) != kObject || symbol.size == 0 ||
          symbol.section >= cubin.section_count()) {
        continue;
      }
      const std::string_view home = cubin.section_name(symbol.section);
      const std::string_view variable = cubin.text(cubin.section(table.link), symbol.name);
      if ((!home.starts_with(".nv.global") && home != ".nv.constant3") || !IsPtxName(variable)) {
        continue;
      }
      variables.append(".visible .global .align 16 .b8 ").append(variable);
      variables.append("[").append(std::to_string(symbol.size)).append("];\n");
    }
  }
  if (cubin.section_count() == 0) return {};
  return ".version 8.0\n.target sm_90\n.address_size 64\n" + variables + kernels;
}

}  // namespace

std::string HollowFromProgram(const void* pointer) {
  Image image{};
  if (FindImage(pointer, &image) != ImageError::kNone) return {};
  if (image.kind == ImageKind::kElf) return FromCubin({image.bytes, image.size_bytes});
  if (image.kind != ImageKind::kFatbin) return {};
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member{};
  while (reader.Next(&member)) {
    std::vector<uint8_t> cubin;
    std::string error;
    if (member.kind == FatbinMemberKind::kElf && member.sm == kComputeTarget &&
        UnpackMember(member, kMaxPtxBytes, &cubin, &error)) {
      return FromCubin(cubin);
    }
  }
  return {};
}

}  // namespace gpuloom::softgpu::ptx
