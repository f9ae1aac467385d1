// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/kernel_layouts.h"

#include <algorithm>
#include <charconv>

#include "proto/cuda/cubin.h"
#include "proto/cuda/fatbin_unpack.h"
#include "proto/cuda/ptx_tokens.h"

namespace gpuloom {
namespace {

using Params = std::vector<ParamLayout>;

// The most that CUDA lets a kernel have.
constexpr uint32_t kMaxParamBytes = 32764;
// What a kernel takes here beside its name and parameters.
constexpr uint64_t kKernelBytes = 128;

// A cubin's section .nv.info.<kernel>: attributes, each of a format, a code, and a value of two bytes, or
// of as many as those two bytes say.
namespace info {
// A format: a value of as many bytes as the two bytes say.
constexpr uint8_t kSized = 4;
// Codes, as NVIDIA's cuobjdump names them: the size of all parameters (EIATTR_CBANK_PARAM_SIZE),
// and one parameter (EIATTR_KPARAM_INFO), of which there are two forms.
constexpr uint8_t kParamBytes = 0x19;
constexpr uint8_t kParam = 0x17;  // of small parameters: the size in the upper 14 bits of a word
constexpr uint8_t kLargeParam = 0x45;
constexpr size_t kParamValueBytes = 12;
}  // namespace info

// The caller has checked that the value lies inside.
template <typename T>
T ReadAt(std::span<const uint8_t> bytes, size_t at) {
  return fatbin_internal::ReadAt<T>(bytes.data() + at);
}

// The end of the last parameter, which is the size of the packed buffer.
uint32_t EndOf(const Params& params) {
  uint32_t end = 0;
  for (const ParamLayout& param : params) {
    end = std::max(end, param.offset_bytes + param.size_bytes);
  }
  return end;
}

// From a kernel's attributes in a cubin. None if they contradict each other, leave a parameter out,
// or go beyond the section.
std::optional<Params> ParamsOf(std::span<const uint8_t> attributes) {
  Params params;
  std::vector<bool> known;
  std::optional<uint32_t> total;
  for (size_t at = 0; at + 4 <= attributes.size();) {
    const uint8_t code = attributes[at + 1];
    const auto word = ReadAt<uint16_t>(attributes, at + 2);
    const bool sized = attributes[at] == info::kSized;
    at += 4;
    if (code == info::kParamBytes && !sized) {
      if (total && *total != word) return std::nullopt;
      total = word;
    }
    if (!sized) continue;
    if (word > attributes.size() - at) return std::nullopt;
    const auto value = attributes.subspan(at, word);
    at += word;
    if (code != info::kParam && code != info::kLargeParam) continue;
    if (value.size() != info::kParamValueBytes) return std::nullopt;
    const auto ordinal = ReadAt<uint16_t>(value, 4);
    const ParamLayout param = {ReadAt<uint16_t>(value, 6), code == info::kParam
                                                               ? ReadAt<uint32_t>(value, 8) >> 18
                                                               : ReadAt<uint16_t>(value, 8)};
    // Each has a byte at least. This bounds what a number of the tenant's makes us allocate.
    if (ordinal >= kMaxParamBytes) return std::nullopt;
    if (ordinal >= params.size()) {
      params.resize(ordinal + 1u);
      known.resize(ordinal + 1u);
    }
    if (known[ordinal]) return std::nullopt;
    known[ordinal] = true;
    params[ordinal] = param;
  }
  const bool all_known = std::all_of(known.begin(), known.end(), [](bool one) { return one; });
  const uint32_t end = EndOf(params);
  if (!all_known || end != total.value_or(0) || end > kMaxParamBytes) return std::nullopt;
  return params;
}

uint32_t SizeOfType(std::string_view type) {
  static constexpr std::pair<std::string_view, uint32_t> kTypes[] = {
      {".u8", 1},  {".s8", 1},    {".b8", 1},     {".u16", 2},        {".s16", 2},
      {".b16", 2}, {".f16", 2},   {".u32", 4},    {".s32", 4},        {".b32", 4},
      {".f32", 4}, {".f16x2", 4}, {".u64", 8},    {".s64", 8},        {".b64", 8},
      {".f64", 8}, {".b128", 16}, {".texref", 8}, {".samplerref", 8}, {".surfref", 8},
  };
  for (const auto& [name, size_bytes] : kTypes) {
    if (name == type) return size_bytes;
  }
  return 0;
}

// None for what no parameter's size, dimension or alignment can be.
std::optional<uint32_t> NumberOf(std::string_view digits) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number <= kMaxParamBytes ? std::optional(number) : std::nullopt;
}

// The tokens of a parameter list behind its '('; stops behind its ')'. None for what no compiler writes.
std::optional<Params> ParamsOf(PtxTokens* tokens) {
  Params params;
  uint32_t end = 0;
  for (std::string_view token = tokens->Next();; token = tokens->Next()) {
    uint32_t align = 1;
    uint32_t size = 0;
    uint32_t count = 1;
    bool is_empty = true;
    bool is_pointer = false;  // what follows tells of what it points to
    for (; token != "," && token != ")"; token = tokens->Next()) {
      if (token.empty()) return std::nullopt;
      is_empty = false;
      if (token == ".align" || token == "[") {
        const auto number = NumberOf(tokens->Next());
        if (!number || *number == 0) return std::nullopt;
        if (token == "[") count = *number;
        if (token == ".align" && !is_pointer) align = *number;
      } else if (token == ".ptr") {
        is_pointer = true;
      } else if (const uint32_t of_type = SizeOfType(token); of_type != 0) {
        size = of_type;
      }
    }
    if (size != 0) {
      // Parameters are aligned to their type at least.
      align = std::max(align, size);
      const uint32_t begin = (end + align - 1) / align * align;
      end = begin + size * count;
      if (end > kMaxParamBytes) return std::nullopt;
      params.push_back({begin, size * count});
    } else if (!is_empty || token == "," || !params.empty()) {
      return std::nullopt;
    }
    if (token == ")") return params;
  }
}

}  // namespace

void KernelLayouts::Add(std::string_view name, std::optional<Params> params) {
  if (const auto known = kernels_.find(name); known != kernels_.end()) {
    // Kept without parameters rather than removed, so that a third copy of it does not bring it
    // back.
    if (known->second != params) known->second.reset();
    return;
  }
  const uint64_t more =
      kKernelBytes + name.size() + (params ? params->size() * sizeof(ParamLayout) : 0);
  // Left out: the kernel is then one whose layout is not known.
  if (more > limit_bytes_ - bytes_) return;
  bytes_ += more;
  kernels_.emplace(name, std::move(params));
}

void KernelLayouts::AddCubin(std::span<const uint8_t> bytes) {
  constexpr std::string_view kInfo = ".nv.info.";
  Cubin cubin;
  if (!cubin.Open(bytes)) return;
  for (uint32_t i = 0; i < cubin.section_count(); ++i) {
    const Cubin::Section section = cubin.SectionAt(i);
    const auto name = cubin.NameOf(section);
    if (!name || !name->starts_with(kInfo) || !cubin.IsInBounds(section)) continue;
    Add(name->substr(kInfo.size()), ParamsOf(bytes.subspan(section.offset, section.size)));
  }
}

void KernelLayouts::AddPtx(std::string_view text) {
  PtxTokens tokens(text);
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (token != ".entry") continue;
    const std::string_view name = tokens.Next();
    token = tokens.Next();
    // Without a list the kernel has no parameters; this token has been read already.
    if (token != "(") {
      Add(name, Params());
      continue;
    }
    Add(name, ParamsOf(&tokens));
  }
}

void KernelLayouts::AddMember(FatbinMemberKind kind, std::span<const uint8_t> bytes) {
  if (kind == FatbinMemberKind::kElf) AddCubin(bytes);
  if (kind == FatbinMemberKind::kPtx) {
    AddPtx({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

KernelLayouts KernelLayouts::Of(std::span<const uint8_t> bytes, uint64_t limit_bytes) {
  KernelLayouts layouts;
  layouts.limit_bytes_ = limit_bytes;
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return layouts;
  const std::span<const uint8_t> whole(image.bytes, image.size_bytes);
  if (image.kind == ImageKind::kElf) layouts.AddMember(FatbinMemberKind::kElf, whole);
  if (image.kind == ImageKind::kPtx) layouts.AddMember(FatbinMemberKind::kPtx, whole);
  if (image.kind != ImageKind::kFatbin) return layouts;
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  std::vector<uint8_t> unpacked;
  std::string error;
  while (reader.Next(&member)) {
    // What cannot be unpacked tells of no kernels; whether the image is sound is for others to
    // judge.
    if (UnpackMember(member, kMaxMemberBytes, &unpacked, &error)) {
      layouts.AddMember(member.kind, unpacked);
    }
  }
  return layouts;
}

const Params* KernelLayouts::Find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found != kernels_.end() && found->second ? &*found->second : nullptr;
}

std::vector<std::string_view> KernelLayouts::Names() const {
  std::vector<std::string_view> names;
  names.reserve(kernels_.size());
  for (const auto& [name, params] : kernels_) names.push_back(name);
  return names;
}

}  // namespace gpuloom
