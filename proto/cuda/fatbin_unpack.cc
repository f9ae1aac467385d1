// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/fatbin_unpack.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <optional>
#include <string_view>

#include "proto/cuda/cubin.h"
#include "proto/cuda/device_bytes.h"
#include "proto/cuda/image_check.h"
#include "proto/cuda/ptx_tokens.h"

namespace gpuloom {
namespace {

// Whether a symbol of the table is a texture, sampler or surface reference. They have no section.
bool HasReferences(const Cubin& cubin, const Cubin::Section& table) {
  constexpr uint8_t kTexture = 10;
  constexpr uint8_t kSurface = 12;
  for (uint64_t i = 0; i < cubin.SymbolCount(table); ++i) {
    const uint8_t type = cubin.SymbolAt(table, i).info & 0xf;
    if (type >= kTexture && type <= kSurface) return true;
  }
  return false;
}

// Whether a section for the device holds the same for every tenant: code, the compiler's own
// constants, addresses, or memory that is new for each block or thread. Variables are in
// .nv.global, .nv.global.init and .nv.constant3.
bool IsCode(std::string_view section_name) {
  constexpr std::string_view kSame[] = {".text.",        ".nv.constant0", ".nv.constant2",
                                        ".nv.constant4", ".nv.shared.",   ".nv.local.",
                                        ".nv.capmerc.",  ".nv.merc."};
  return std::any_of(std::begin(kSame), std::end(kSame),
                     [&](std::string_view same) { return section_name.starts_with(same); });
}

// Returns true also if the file cannot be read completely.
bool ElfHasVariables(std::span<const uint8_t> elf) {
  Cubin cubin;
  if (!cubin.Open(elf) || cubin.section_count() == 0) return true;
  for (uint32_t i = 0; i < cubin.section_count(); ++i) {
    const Cubin::Section section = cubin.SectionAt(i);
    const std::optional<std::string_view> known = cubin.NameOf(section);
    if (!known || (Cubin::IsSymbols(section) && HasReferences(cubin, section))) return true;
    const std::string_view name = *known;
    if (section.size == 0) continue;
    if (name.starts_with(".nv.global") || name.starts_with(".nv.constant3")) return true;
    if ((section.flags & fatbin_internal::kElfAllocated) != 0 && !IsCode(name)) return true;
  }
  return false;
}

// The device memory of an unpacked member. The driver loads one member of an image; which one is not known here, so
// callers take the largest.
uint64_t DeviceBytes(FatbinMemberKind kind, std::span<const uint8_t> bytes) {
  if (kind == FatbinMemberKind::kElf) return CubinDeviceBytes(bytes);
  if (kind != FatbinMemberKind::kPtx) return 0;
  return PtxVariableBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool HasVariables(FatbinMemberKind kind, std::span<const uint8_t> bytes) {
  switch (kind) {
    case FatbinMemberKind::kElf:
      return ElfHasVariables(bytes);
    case FatbinMemberKind::kPtx:
      return PtxDeclaresState({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    // Not understood: in doubt, it has variables.
    default:
      return true;
  }
}

}  // namespace

bool UnpackMember(const FatbinMember& member, size_t limit_bytes, std::vector<uint8_t>* out,
                  std::string* error) {
  // The size is a claim of the tenant's. It bounds what is allocated, and the decompressors write
  // no more.
  if (member.uncompressed_bytes > limit_bytes) {
    *error = "member unpacks to " + std::to_string(member.uncompressed_bytes) +
             " bytes, more than the limit of " + std::to_string(limit_bytes);
    return false;
  }
  out->reserve(member.uncompressed_bytes + 1);
  switch (member.compression) {
    case FatbinCompression::kNone:
      out->assign(member.payload, member.payload + member.payload_bytes);
      return true;
    case FatbinCompression::kLz4: {
      // LZ4 counts in int.
      if (member.payload_bytes > INT_MAX || member.uncompressed_bytes > INT_MAX) {
        *error = "lz4: member is too large";
        return false;
      }
      out->resize(member.uncompressed_bytes);
      const int n = LZ4_decompress_safe(
          reinterpret_cast<const char*>(member.payload), reinterpret_cast<char*>(out->data()),
          static_cast<int>(member.payload_bytes), static_cast<int>(member.uncompressed_bytes));
      if (n < 0 || static_cast<size_t>(n) != member.uncompressed_bytes) {
        *error = "lz4: member is corrupt";
        return false;
      }
      return true;
    }
    case FatbinCompression::kZstd: {
      out->resize(member.uncompressed_bytes);
      const size_t n =
          ZSTD_decompress(out->data(), out->size(), member.payload, member.payload_bytes);
      if (ZSTD_isError(n) != 0 || n != member.uncompressed_bytes) {
        *error = std::string("zstd: ") +
                 (ZSTD_isError(n) != 0 ? ZSTD_getErrorName(n) : "member is shorter than it says");
        return false;
      }
      return true;
    }
  }
  *error = "member is compressed in an unknown way";
  return false;
}

namespace {

// Returns true if `holds` is true of any member, or if the image cannot be read.
template <typename Holds>
bool AnyMember(std::span<const uint8_t> bytes, Holds holds) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return true;
  const std::span<const uint8_t> whole(image.bytes, image.size_bytes);
  if (image.kind == ImageKind::kElf) return holds(FatbinMemberKind::kElf, whole);
  if (image.kind == ImageKind::kPtx) return holds(FatbinMemberKind::kPtx, whole);

  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  std::vector<uint8_t> unpacked;
  std::string error;
  while (reader.Next(&member)) {
    if (!UnpackMember(member, kMaxMemberBytes, &unpacked, &error) ||
        holds(member.kind, std::span<const uint8_t>(unpacked)))
      return true;
  }
  return reader.error() != ImageError::kNone;
}

// An ELF file's string table contains the whole name of an undefined symbol. A name found elsewhere
// only means that a kernel takes turns at printing without need.
bool NamesPrintf(std::span<const uint8_t> member) {
  const std::string_view text(reinterpret_cast<const char*>(member.data()), member.size());
  return text.find("vprintf") != std::string_view::npos;
}

}  // namespace

uint64_t LargestMemberBytes(std::span<const uint8_t> bytes) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return 0;
  if (image.kind != ImageKind::kFatbin) return image.size_bytes;
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  uint64_t largest = 0;
  while (reader.Next(&member)) {
    if (member.uncompressed_bytes > kMaxMemberBytes) continue;
    largest = std::max<uint64_t>(largest, member.uncompressed_bytes);
  }
  return largest;
}

bool TakeOnlyCubin(std::span<const uint8_t> bytes, uint32_t capability,
                   std::vector<uint8_t>* cubin) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone ||
      image.kind != ImageKind::kFatbin) {
    return false;
  }
  std::optional<FatbinMember> only;
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  while (reader.Next(&member)) {
    // Code that needs a device's own features (sm_90a) has the same number as what does not. Which
    // of two is better is for the driver to say.
    if (member.kind != FatbinMemberKind::kElf || member.sm != capability) continue;
    if (only || !IsWrittenAsKnown(member)) return false;
    only = member;
  }
  std::string error;
  Cubin unpacked;
  return reader.error() == ImageError::kNone && only &&
         UnpackMember(*only, kMaxMemberBytes, cubin, &error) && unpacked.Open(*cubin) &&
         unpacked.capability() == capability;
}

bool HasVariables(std::span<const uint8_t> bytes) {
  return AnyMember(bytes, [](FatbinMemberKind kind, std::span<const uint8_t> member) {
    return HasVariables(kind, member);
  });
}

bool MayPrint(std::span<const uint8_t> bytes) {
  return AnyMember(
      bytes, [](FatbinMemberKind, std::span<const uint8_t> member) { return NamesPrintf(member); });
}

ImageContent InspectImage(std::span<const uint8_t> bytes) {
  ImageContent content = {false, false, true, 0, {}};
  bool is_clear = true;
  const auto take = [&](FatbinMemberKind kind, std::span<const uint8_t> member) {
    content.variables = content.variables || HasVariables(kind, member);
    content.prints = content.prints || NamesPrintf(member);
    content.device_bytes = std::max(content.device_bytes, DeviceBytes(kind, member));
    content.system_atomics.Add(kind, member);
  };
  Image image;
  // Nothing is known of it: it counts as anything that it may be, and as damaged.
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone)
    return {true, true, false, 0, {}};
  const std::span<const uint8_t> whole(image.bytes, image.size_bytes);
  if (image.kind != ImageKind::kFatbin) {
    const bool is_cubin = image.kind == ImageKind::kElf;
    take(is_cubin ? FatbinMemberKind::kElf : FatbinMemberKind::kPtx, whole);
    content.is_sound = !is_cubin || IsSoundCubin(whole);
    return content;
  }
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member;
  std::vector<uint8_t> unpacked;
  while (content.is_sound && reader.Next(&member)) {
    std::string error;
    // A cubin or text that cannot be unpacked is damaged. Other kinds are left to the driver, and
    // may contain anything.
    if (!IsWrittenAsKnown(member) || !UnpackMember(member, kMaxMemberBytes, &unpacked, &error)) {
      is_clear = false;
      content.is_sound = !IsJudged(member);
      continue;
    }
    content.is_sound = IsSoundMember(member.kind, unpacked);
    take(member.kind, unpacked);
  }
  if (!is_clear || reader.error() != ImageError::kNone) content.variables = content.prints = true;
  return content;
}

}  // namespace gpuloom
