// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/image_check.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/elf_file.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom {
namespace {

using fatbin_internal::ReadAt;

constexpr uint32_t kElfMagic = 0x464c457f;

// Whether the driver would not take it for text, whatever the caller calls it.
bool BeginsAsImage(std::span<const uint8_t> bytes) {
  constexpr uint32_t kArchiveMagic = 0x72613c21;  // "!<ar"
  if (bytes.size() < sizeof(uint32_t)) return false;
  const auto begin = ReadAt<uint32_t>(bytes.data());
  return begin == kFatbinMagic || begin == kFatbinWrapperMagic || begin == kElfMagic ||
         begin == kArchiveMagic;
}

// One member at a time, into the same memory, of which `afford` is asked for each.
bool IsSoundFatbin(std::span<const uint8_t> fatbin, const Afford& afford) {
  FatbinReader members(fatbin.data(), fatbin.size());
  FatbinMember member;
  std::vector<uint8_t> unpacked;
  std::string error;
  while (members.Next(&member)) {
    if (!IsJudged(member)) continue;
    if (member.uncompressed_bytes > kMaxMemberBytes || !afford(member.uncompressed_bytes) ||
        !UnpackMember(member, kMaxMemberBytes, &unpacked, &error) ||
        !IsSoundMember(member.kind, unpacked)) {
      return false;
    }
  }
  return members.error() == ImageError::kNone;
}

// Fatbins one behind the other, each where a multiple of 8 begins, as the host's linker lays them out.
bool AreSoundFatbins(std::span<const uint8_t> bytes, const Afford& afford) {
  while (bytes.size() >= sizeof(FatbinHeader)) {
    Image image;
    if (ReadAt<uint32_t>(bytes.data()) != kFatbinMagic) {
      // Between them there is only padding.
      if (ReadAt<uint64_t>(bytes.data()) != 0) return false;
      bytes = bytes.subspan(sizeof(uint64_t));
      continue;
    }
    if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone ||
        !IsSoundFatbin({image.bytes, image.size_bytes}, afford)) {
      return false;
    }
    bytes = bytes.subspan(std::min((image.size_bytes + 7) & ~size_t{7}, bytes.size()));
  }
  return true;
}

// A cubin, or a host's object file.
bool IsSoundObject(std::span<const uint8_t> object, const Afford& afford) {
  ElfFile file(object);
  if (!file.IsSound()) return false;
  const auto are_sound = [&](std::span<const uint8_t> bytes) {
    return AreSoundFatbins(bytes, afford);
  };
  return file.is_cuda() ||
         (file.EachNamed(".nv_fatbin", are_sound) && file.EachNamed("__nv_relfatbin", are_sound));
}

// "!<arch>\n", then members: 60 bytes that say its name, times and size in decimal digits, then as many
// bytes, and one more where that is odd.
bool IsSoundArchive(std::span<const uint8_t> archive, const Afford& afford) {
  constexpr std::string_view kMagic = "!<arch>\n";
  constexpr size_t kHeaderBytes = 60;
  constexpr std::string_view kHeaderEnd = "`\n";
  const std::string_view text(reinterpret_cast<const char*>(archive.data()), archive.size());
  if (!text.starts_with(kMagic)) return false;
  for (size_t at = kMagic.size(); at < text.size();) {
    if (text.size() - at < kHeaderBytes) return false;
    const std::string_view header = text.substr(at, kHeaderBytes);
    const std::string_view digits = header.substr(48, 10);
    size_t size = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), size);
    // Numbers are padded with blanks.
    if (error != std::errc() || std::any_of(end, digits.end(), [](char c) { return c != ' '; }) ||
        header.substr(58) != kHeaderEnd || size > text.size() - at - kHeaderBytes) {
      return false;
    }
    at += kHeaderBytes;
    // The index of symbols, and the names that are too long, have names that begin with a slash.
    const bool is_table = header.starts_with("/ ") || header.starts_with("//");
    if (!is_table && !IsSoundObject(archive.subspan(at, size), afford)) return false;
    at += size + size % 2;
  }
  return true;
}

}  // namespace

bool IsSoundCubin(std::span<const uint8_t> cubin) {
  ElfFile file(cubin);
  return file.IsSound() && file.is_cuda();
}

bool IsSoundMember(FatbinMemberKind kind, std::span<const uint8_t> unpacked) {
  if (kind == FatbinMemberKind::kElf) return IsSoundCubin(unpacked);
  if (kind != FatbinMemberKind::kPtx) return true;
  return !unpacked.empty() && unpacked.back() == 0 && !BeginsAsImage(unpacked);
}

bool IsJudged(const FatbinMember& member) {
  return IsWrittenAsKnown(member) &&
         (member.kind == FatbinMemberKind::kElf || member.kind == FatbinMemberKind::kPtx);
}

bool IsSoundLinkInput(std::span<const uint8_t> input, const Afford& afford) {
  // Each begins with a magic number of its own, so at most one of them looks further.
  return IsSoundFatbin(input, afford) || IsSoundObject(input, afford) ||
         IsSoundArchive(input, afford);
}

bool IsSoundLinkText(std::span<const uint8_t> text, const Afford& afford) {
  return !BeginsAsImage(text) || IsSoundLinkInput(text, afford);
}

}  // namespace gpuloom
