#include "proto/cuda/fatbin_unpack.h"

#include <lz4.h>
#include <zstd.h>

#include <climits>
#include <string_view>

namespace gpuloom {
namespace {

// What one member of an image may unpack to here. The largest cubins of NVIDIA's own libraries are
// some tens of MiB.
constexpr size_t kMaxMemberBytes = size_t{512} << 20;

constexpr uint32_t kSymbolTable = 2;  // an ELF section's type

// Whether a symbol of the table is a texture, sampler or surface reference. They have no section.
bool HasReferences(std::span<const uint8_t> elf, const fatbin_internal::ElfSection& table) {
  constexpr uint8_t kTexture = 10;
  constexpr uint8_t kSurface = 12;
  if (table.offset > elf.size() || table.size > elf.size() - table.offset) return true;
  for (uint64_t at = 0; at + sizeof(fatbin_internal::ElfSymbol) <= table.size;
       at += sizeof(fatbin_internal::ElfSymbol)) {
    const auto symbol =
        fatbin_internal::ReadAt<fatbin_internal::ElfSymbol>(elf.data() + table.offset + at);
    const uint8_t type = symbol.info & 0xf;
    if (type >= kTexture && type <= kSurface) return true;
  }
  return false;
}

bool ElfHasVariables(std::span<const uint8_t> elf) {
  Image image;
  if (FindImage(elf.data(), elf.size(), &image) != ImageError::kNone ||
      image.kind != ImageKind::kElf)
    return true;
  const auto header = fatbin_internal::ReadAt<fatbin_internal::ElfHeader>(elf.data());
  if (header.section_count == 0) return false;
  if (header.section_names >= header.section_count) return true;
  const auto section_at = [&](uint32_t i) {
    return fatbin_internal::ReadAt<fatbin_internal::ElfSection>(
        elf.data() + header.section_offset + uint64_t{i} * header.section_entry_bytes);
  };
  const auto names = section_at(header.section_names);
  if (names.offset > elf.size() || names.size > elf.size() - names.offset) return true;
  const std::string_view strings(reinterpret_cast<const char*>(elf.data()) + names.offset,
                                 names.size);
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const auto section = section_at(i);
    if (section.name >= strings.size()) return true;
    if (section.type == kSymbolTable && HasReferences(elf, section)) return true;
    std::string_view name = strings.substr(section.name);
    name = name.substr(0, name.find('\0'));
    // Bank 3 is where __constant__ variables live; other banks hold parameters and the compiler's
    // own constants.
    if (section.size != 0 && (name.starts_with(".nv.global") || name == ".nv.constant3"))
      return true;
  }
  return false;
}

// A variable's declaration is the only place where .global or .const stands as a word of its own,
// but for the address space of a pointer parameter (.ptr .global).
bool PtxHasVariables(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::string_view previous;
  for (size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    size_t end = text.find_first_of(kSpace, begin);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(begin, end - begin);
    if ((word == ".global" || word == ".const") && previous != ".ptr") return true;
    previous = word;
    begin = text.find_first_not_of(kSpace, end);
  }
  return false;
}

bool HasVariables(FatbinMemberKind kind, std::span<const uint8_t> bytes) {
  switch (kind) {
    case FatbinMemberKind::kElf:
      return ElfHasVariables(bytes);
    case FatbinMemberKind::kPtx:
      return PtxHasVariables({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    default:
      return true;
  }
}

}  // namespace

bool UnpackMember(const FatbinMember& member, size_t limit_bytes, std::vector<uint8_t>* out,
                  std::string* error) {
  if (member.uncompressed_bytes > limit_bytes) {
    *error = "member unpacks to " + std::to_string(member.uncompressed_bytes) +
             " bytes, more than the limit of " + std::to_string(limit_bytes);
    return false;
  }
  switch (member.compression) {
    case FatbinCompression::kNone:
      out->assign(member.payload, member.payload + member.payload_bytes);
      return true;
    case FatbinCompression::kLz4: {
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

// Whether `holds` is true of some member; also when the image cannot be read.
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

// The name of an ELF file's undefined symbol stands in its string table, whole; any other mention
// only costs turns that nobody needs.
bool NamesPrintf(std::span<const uint8_t> member) {
  const std::string_view text(reinterpret_cast<const char*>(member.data()), member.size());
  return text.find("vprintf") != std::string_view::npos;
}

}  // namespace

bool HasVariables(std::span<const uint8_t> bytes) {
  return AnyMember(bytes, [](FatbinMemberKind kind, std::span<const uint8_t> member) {
    return HasVariables(kind, member);
  });
}

bool MayPrint(std::span<const uint8_t> bytes) {
  return AnyMember(
      bytes, [](FatbinMemberKind, std::span<const uint8_t> member) { return NamesPrintf(member); });
}

ImageContent LookInto(std::span<const uint8_t> bytes) {
  ImageContent content = {false, false};
  const bool unclear =
      AnyMember(bytes, [&](FatbinMemberKind kind, std::span<const uint8_t> member) {
        content.variables = content.variables || HasVariables(kind, member);
        content.prints = content.prints || NamesPrintf(member);
        return content.variables && content.prints;
      });
  return unclear ? ImageContent{true, true} : content;
}

}  // namespace gpuloom
