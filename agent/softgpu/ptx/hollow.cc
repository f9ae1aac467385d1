// SPDX-License-Identifier: Apache-2.0
// Names come from the sections and symbols of a cubin: a kernel's code lies in .text.NAME,
// variables are symbols of data sections.
#include "agent/softgpu/ptx/hollow.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/image.h"
#include "proto/cuda/cubin.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom::softgpu::ptx {
namespace {

// STT_OBJECT of ELF, in the low four bits of a symbol's info.
constexpr uint8_t kObject = 1;

// A name that would be a token of its own, so that an image cannot write PTX into the text.
bool IsPtxName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
  });
}

std::string FromCubin(std::span<const uint8_t> bytes, const Target& target) {
  Cubin cubin;
  if (!cubin.Open(bytes) || cubin.section_count() == 0) return {};
  std::string kernels, variables;
  constexpr std::string_view kCode = ".text.";
  for (uint32_t i = 0; i < cubin.section_count(); ++i) {
    const Cubin::Section section = cubin.SectionAt(i);
    const std::string_view name = cubin.NameOf(section).value_or("");
    if (name.starts_with(kCode) && IsPtxName(name.substr(kCode.size()))) {
      kernels.append(".visible .entry ").append(name.substr(kCode.size())).append("() { ret; }\n");
    }
    if (!Cubin::IsSymbols(section) || section.link >= cubin.section_count()) continue;
    for (uint64_t k = 0; k < cubin.SymbolCount(section); ++k) {
      const Cubin::Symbol symbol = cubin.SymbolAt(section, k);
      if ((symbol.info & 15) != kObject || symbol.size == 0 ||
          symbol.section >= cubin.section_count()) {
        continue;
      }
      const std::string_view home = cubin.NameOf(cubin.SectionAt(symbol.section)).value_or("");
      const std::string_view variable =
          cubin.NameIn(cubin.SectionAt(section.link), symbol.name).value_or("");
      // Variables of global memory, and of the constant bank that __constant__ variables lie in.
      // They become global memory: nothing runs that could notice.
      if ((!home.starts_with(".nv.global") && home != ".nv.constant3") || !IsPtxName(variable)) {
        continue;
      }
      variables.append(".visible .global .align 16 .b8 ").append(variable);
      variables.append("[").append(std::to_string(symbol.size)).append("];\n");
    }
  }
  // PTX that every played driver knows, and a target that the device runs.
  return ".version 8.0\n.target sm_" + std::to_string(std::min(target.capability, 90u)) +
         "\n.address_size 64\n" + variables + kernels;
}

}  // namespace

std::string HollowFromProgram(const void* pointer, const Target& target) {
  Image image{};
  if (FindImage(pointer, &image) != ImageError::kNone) return {};
  if (image.kind == ImageKind::kElf) return FromCubin({image.bytes, image.size_bytes}, target);
  if (image.kind != ImageKind::kFatbin) return {};
  // The first machine code that the device could run.
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member{};
  while (reader.Next(&member)) {
    std::vector<uint8_t> cubin;
    std::string error;
    if (member.kind == FatbinMemberKind::kElf && IsMachineCodeFor(member.sm, target) &&
        UnpackMember(member, kMaxPtxBytes, &cubin, &error)) {
      return FromCubin(cubin, target);
    }
  }
  return {};
}

}  // namespace gpuloom::softgpu::ptx
