// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/system_atomics.h"

#include <algorithm>
#include <functional>

#include "proto/cuda/cubin.h"
#include "proto/cuda/ptx_tokens.h"

namespace gpuloom {
namespace {

// Machine code of compute capability 7.0 and later: instructions of 128 bits, compared with what CUDA 13.0's ptxas makes
// of each operation in each scope, for 7.5, 8.0, 9.0, 10.0 and 12.0.
constexpr size_t kInstructionBytes = 16;
constexpr uint32_t kFirstCapability = 70;

// Bits 0 to 8.
bool IsAtomic(uint64_t low) {
  switch (low & 0x1ff) {
    case 0x18a:  // on a generic address
    case 0x18b:  // compare and swap
    case 0x18e:  // without a result
    case 0x1a8:  // on global memory
    case 0x1a9:
    case 0x1a2:  // of floating-point numbers, from 9.0 on
    case 0x1a3:
    case 0x1a6:
      return true;
    default:
      return false;
  }
}

// Bits 77 to 80: ordering and scope together.
uint64_t SystemScope(uint32_t capability) { return capability < 80 ? 11 : 10; }
uint64_t ScopeOf(uint64_t high) { return (high >> 13) & 0xf; }

bool HasThem(std::span<const uint8_t> code, uint64_t system_scope) {
  for (; code.size() >= kInstructionBytes; code = code.subspan(kInstructionBytes)) {
    if (IsAtomic(fatbin_internal::ReadAt<uint64_t>(code.data())) &&
        ScopeOf(fatbin_internal::ReadAt<uint64_t>(code.data() + 8)) == system_scope) {
      return true;
    }
  }
  return false;
}

// What follows `prefix` in the name of a section.
std::optional<std::string_view> NameBehind(const Cubin& cubin, const Cubin::Section& section,
                                           std::string_view prefix) {
  const auto name = cubin.NameOf(section);
  if (!name || !name->starts_with(prefix)) return std::nullopt;
  return name->substr(prefix.size());
}

}  // namespace

void SystemAtomics::AddKernel(std::string_view name) {
  const size_t hash = std::hash<std::string_view>()(name);
  const auto at = std::lower_bound(kernels_.begin(), kernels_.end(), hash);
  if (all_ || (at != kernels_.end() && *at == hash)) return;
  if (kernels_.size() == kMostKernels) {
    all_ = true;
    kernels_.clear();
    return;
  }
  kernels_.insert(at, hash);
}

// Each function has its code in a section of its own; a kernel also has its constants in one.
void SystemAtomics::AddCubin(std::span<const uint8_t> bytes) {
  Cubin cubin;
  if (!cubin.Open(bytes) || cubin.capability() < kFirstCapability) return;
  std::vector<std::string_view> functions;
  uint64_t seen_bytes = 0;
  for (uint32_t i = 0; i < cubin.section_count(); ++i) {
    const Cubin::Section section = cubin.SectionAt(i);
    const auto name = NameBehind(cubin, section, ".text.");
    if (!name || !cubin.IsInBounds(section)) continue;
    seen_bytes += section.size;
    // Sections that lie on each other: no compiler makes them, and looking through each would take for ever.
    if (seen_bytes > bytes.size()) {
      all_ = true;
      return;
    }
    if (HasThem(bytes.subspan(section.offset, section.size), SystemScope(cubin.capability()))) {
      functions.push_back(*name);
    }
  }
  std::sort(functions.begin(), functions.end());
  size_t kernels = 0;
  for (uint32_t i = 0; !functions.empty() && i < cubin.section_count(); ++i) {
    const auto name = NameBehind(cubin, cubin.SectionAt(i), ".nv.constant0.");
    if (!name || !std::binary_search(functions.begin(), functions.end(), *name)) continue;
    AddKernel(*name);
    ++kernels;
  }
  if (kernels < functions.size()) all_ = true;
}

void SystemAtomics::AddPtx(std::string_view text) {
  PtxTokens tokens(text);
  std::string_view kernel;  // empty in a function that is none
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (token == ".func") kernel = {};
    if (token == ".entry") kernel = tokens.Next();
    if (token != "atom" && token != "red") continue;
    bool is_system = false;
    bool is_shared = false;
    for (token = tokens.Next(); token.starts_with('.'); token = tokens.Next()) {
      is_system |= token == ".sys";
      is_shared |= token.starts_with(".shared");
    }
    if (!is_system || is_shared) continue;
    if (kernel.empty()) {
      all_ = true;
    } else {
      AddKernel(kernel);
    }
  }
}

void SystemAtomics::Add(FatbinMemberKind kind, std::span<const uint8_t> member) {
  if (all_) return;
  if (kind == FatbinMemberKind::kElf) AddCubin(member);
  if (kind == FatbinMemberKind::kPtx) {
    AddPtx({reinterpret_cast<const char*>(member.data()), member.size()});
  }
}

bool SystemAtomics::MayBeIn(std::string_view kernel) const {
  return all_ || std::binary_search(kernels_.begin(), kernels_.end(),
                                    std::hash<std::string_view>()(kernel));
}

}  // namespace gpuloom
