// SPDX-License-Identifier: Apache-2.0
// Parses what a program passes to cuModuleLoadData and cuLibraryLoadData: the wrapper that nvcc
// puts into .nvFatBinSegment, the fatbin, a cubin (ELF), or PTX text. Images arrive without a
// length; FindImage measures them.
//
// Header-only, no allocation, no libc but memcpy/memcmp/strlen: used in the tenant's process, in
// the executor and in the software driver. All functions are pure and safe from any thread. Nothing
// is copied or owned: views point into the caller's memory. All integers are little-endian, sizes
// are bytes.
//
//   Image image;  // of unknown length
//   if (FindImage(pointer, &image) != ImageError::kNone) return CUDA_ERROR_INVALID_IMAGE;
//   for (FatbinReader members(image.bytes, image.size_bytes); members.Next(&member);) …
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gpuloom {

inline constexpr uint32_t kFatbinWrapperMagic = 0x466243b1;
inline constexpr uint32_t kFatbinMagic = 0xba55ed50;

// __fatBinC_Wrapper_t. Only meaningful in the process that made it.
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;   // 1; 2 = linked device code
  const void* data;   // a fatbin
  const void* extra;  // version 1: a file name or null; version 2: a null-terminated array of
                      // pointers to the fatbins that were linked into `data`
};
static_assert(sizeof(FatbinWrapper) == 24 && std::is_trivially_copyable_v<FatbinWrapper>);
static_assert(offsetof(FatbinWrapper, data) == 8 && offsetof(FatbinWrapper, extra) == 16);

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;       // 1
  uint16_t header_bytes;  // 16
  uint64_t body_bytes;    // everything after the header
};
static_assert(sizeof(FatbinHeader) == 16 && std::is_trivially_copyable_v<FatbinHeader>);
static_assert(offsetof(FatbinHeader, body_bytes) == 8);

// The first 64 bytes of a member's header; header_bytes is its full length (64 for ELF, more if
// names follow).
struct FatbinMemberHeader {
  uint16_t kind;
  uint16_t version;  // 0x0101
  uint32_t header_bytes;
  uint64_t padded_payload_bytes;  // the next member begins after header and this
  uint32_t compressed_bytes;      // exact length in the payload; 0 if not compressed
  uint32_t options_offset;        // from this header; 0 = none
  uint16_t minor;                 // PTX: the ISA's version 9.0 is major 9, minor 0; ELF: the ABI's
  uint16_t major;
  uint32_t sm;  // 90 for sm_90 and compute_90
  uint32_t name_offset;
  uint32_t name_bytes;
  uint64_t flags;
  uint64_t reserved;
  uint64_t uncompressed_bytes;  // 0 if not compressed
};
static_assert(sizeof(FatbinMemberHeader) == 64 && std::is_trivially_copyable_v<FatbinMemberHeader>);
static_assert(offsetof(FatbinMemberHeader, padded_payload_bytes) == 8);
static_assert(offsetof(FatbinMemberHeader, compressed_bytes) == 16);
static_assert(offsetof(FatbinMemberHeader, sm) == 28);
static_assert(offsetof(FatbinMemberHeader, flags) == 40);
static_assert(offsetof(FatbinMemberHeader, uncompressed_bytes) == 56);

// All flags of the members in CUDA 13.0's libraries.
inline constexpr uint64_t kFatbinKnownFlags = 0x131afff;
inline constexpr uint64_t kFatbinFlagLz4 = 0x2000;
inline constexpr uint64_t kFatbinFlagZstd = 0x8000;

enum class FatbinMemberKind : uint16_t { kPtx = 1, kElf = 2, kLtoIr = 8 };
enum class FatbinCompression : uint8_t { kNone, kLz4, kZstd };

// A view of one member. `payload` is exactly payload_bytes long: text or ELF when compression is
// kNone (PTX may then be followed by NULs up to the padding), else what unpacks to
// uncompressed_bytes.
struct FatbinMember {
  FatbinMemberKind kind;  // may be a value without a name: skip those
  FatbinCompression compression;
  uint32_t sm;
  uint16_t major;
  uint16_t minor;
  uint64_t flags;
  const uint8_t* payload;
  size_t payload_bytes;
  size_t uncompressed_bytes;  // equals payload_bytes when stored plainly
};

// Returns true if the member has only flags of kFatbinKnownFlags.
inline bool IsWrittenAsKnown(const FatbinMember& member) {
  return (member.flags & ~kFatbinKnownFlags) == 0;
}

enum class ImageKind : uint8_t { kFatbin, kElf, kPtx };

enum class ImageError : uint8_t {
  kNone,
  kUnknownFormat,  // none of the formats, or an ELF that is not CUDA's
  kBadHeader,      // the format is known, its header contradicts itself
  kTruncated,      // the image claims to be longer than the bytes there are
};

struct Image {
  ImageKind kind;
  const uint8_t* bytes;
  size_t size_bytes;  // PTX: without the terminating NUL
};

namespace fatbin_internal {

inline constexpr size_t kUnknownSize = SIZE_MAX;
inline constexpr uint16_t kElfMachineCuda = 190;
inline constexpr uint32_t kElfSectionSymbols = 2;
inline constexpr uint32_t kElfSectionNoBits = 8;
// Section flag: the section is for the device.
inline constexpr uint64_t kElfAllocated = 2;

// A section of this type takes device memory but no space in the file: ELF's own, and CUDA's for
// uninitialized global, local and shared memory (those that cubins of NCCL and cudadevrt have).
inline bool HasNoContent(uint32_t section_type) {
  constexpr uint32_t kGlobal = 0x70000007;
  constexpr uint32_t kLocal = 0x70000009;
  constexpr uint32_t kShared = 0x7000000a;
  constexpr uint32_t kSharedReserved = 0x70000015;
  return section_type == kElfSectionNoBits || section_type == kGlobal || section_type == kLocal ||
         section_type == kShared || section_type == kSharedReserved;
}

// sum = a + b, false on overflow.
inline bool Add(uint64_t a, uint64_t b, uint64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}

template <typename T>
T ReadAt(const uint8_t* bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof(value));  // images need not be aligned
  return value;
}

// The ELF64 header's fields that give the length.
struct ElfHeader {
  uint8_t ident[16];
  uint16_t type;
  uint16_t machine;
  uint32_t version;
  uint64_t entry;
  uint64_t program_offset;
  uint64_t section_offset;
  uint32_t flags;
  uint16_t header_bytes;
  uint16_t program_entry_bytes;
  uint16_t program_count;
  uint16_t section_entry_bytes;
  uint16_t section_count;
  uint16_t section_names;
};
static_assert(sizeof(ElfHeader) == 64);

struct ElfSection {
  uint32_t name;
  uint32_t type;
  uint64_t flags;
  uint64_t address;
  uint64_t offset;
  uint64_t size;
  uint32_t link;
  uint32_t info;
  uint64_t align;
  uint64_t entry_bytes;
};
static_assert(sizeof(ElfSection) == 64);

struct ElfSymbol {
  uint32_t name;
  uint8_t info;
  uint8_t other;
  uint16_t section;
  uint64_t value;
  uint64_t size;
};
static_assert(sizeof(ElfSymbol) == 24);

inline ImageError MeasureFatbin(const uint8_t* bytes, size_t limit, Image* image) {
  if (limit < sizeof(FatbinHeader)) return ImageError::kTruncated;
  const auto header = ReadAt<FatbinHeader>(bytes);
  uint64_t total = 0;
  if (header.header_bytes < sizeof(FatbinHeader)) return ImageError::kBadHeader;
  if (!Add(header.header_bytes, header.body_bytes, &total)) return ImageError::kBadHeader;
  if (total > limit) return ImageError::kTruncated;
  *image = {ImageKind::kFatbin, bytes, static_cast<size_t>(total)};
  return ImageError::kNone;
}

// The end of the file is the end of whatever lies last: a header table (CUDA's own cubins end with
// the program headers) or a section's content.
inline ImageError MeasureElf(const uint8_t* bytes, size_t limit, Image* image) {
  if (limit < sizeof(ElfHeader)) return ImageError::kTruncated;
  const auto header = ReadAt<ElfHeader>(bytes);
  constexpr uint8_t kClass64 = 2;
  if (header.ident[4] != kClass64 || header.machine != kElfMachineCuda)
    return ImageError::kUnknownFormat;
  uint64_t programs_end = 0;
  uint64_t sections_end = 0;
  if (!Add(header.program_offset, uint64_t{header.program_count} * header.program_entry_bytes,
           &programs_end) ||
      !Add(header.section_offset, uint64_t{header.section_count} * header.section_entry_bytes,
           &sections_end)) {
    return ImageError::kBadHeader;
  }
  uint64_t total = sizeof(ElfHeader);
  if (programs_end > total) total = programs_end;
  if (sections_end > total) total = sections_end;
  if (total > limit) return ImageError::kTruncated;
  if (header.section_count != 0 && header.section_entry_bytes < sizeof(ElfSection))
    return ImageError::kBadHeader;
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const auto section = ReadAt<ElfSection>(bytes + header.section_offset +
                                            uint64_t{i} * header.section_entry_bytes);
    if (section.type == 0 || HasNoContent(section.type)) continue;
    uint64_t end = 0;
    if (!Add(section.offset, section.size, &end)) return ImageError::kBadHeader;
    if (end > total) total = end;
  }
  if (total > limit) return ImageError::kTruncated;
  *image = {ImageKind::kElf, bytes, static_cast<size_t>(total)};
  return ImageError::kNone;
}

// PTX begins, after white space and comments, with its .version directive. Reads no further than a
// NUL or `limit`.
inline bool LooksLikePtx(const uint8_t* bytes, size_t limit) {
  const auto at = [&](size_t i) { return i < limit ? bytes[i] : uint8_t{0}; };
  size_t i = 0;
  for (;;) {
    const uint8_t c = at(i);
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      ++i;
    } else if (c == '/' && at(i + 1) == '/') {
      while (at(i) != 0 && at(i) != '\n') ++i;
    } else if (c == '/' && at(i + 1) == '*') {
      i += 2;
      while (at(i) != 0 && !(at(i) == '*' && at(i + 1) == '/')) ++i;
      if (at(i) == 0) return false;
      i += 2;
    } else {
      break;
    }
  }
  constexpr char kVersion[] = ".version";
  for (size_t j = 0; j + 1 < sizeof(kVersion); ++j) {
    if (at(i + j) != static_cast<uint8_t>(kVersion[j])) return false;
  }
  return true;
}

inline ImageError Measure(const uint8_t* bytes, size_t limit, Image* image) {
  // Byte by byte, so that a short text of unknown length is never read past its NUL.
  const auto begins_with = [&](const uint8_t(&magic)[4]) {
    for (size_t i = 0; i < 4; ++i) {
      if (i >= limit || bytes[i] != magic[i]) return false;
    }
    return true;
  };
  constexpr uint8_t kFatbinBytes[4] = {0x50, 0xed, 0x55, 0xba};
  constexpr uint8_t kElfBytes[4] = {0x7f, 'E', 'L', 'F'};
  if (begins_with(kFatbinBytes)) return MeasureFatbin(bytes, limit, image);
  if (begins_with(kElfBytes)) return MeasureElf(bytes, limit, image);
  if (!LooksLikePtx(bytes, limit)) return ImageError::kUnknownFormat;
  size_t length = 0;
  while (length < limit && bytes[length] != 0) ++length;
  *image = {ImageKind::kPtx, bytes, length};
  return ImageError::kNone;
}

}  // namespace fatbin_internal

// Returns true if `pointer` is a __fatBinC_Wrapper_t; *wrapper is then a copy of it. Only for a
// program's own pointers.
[[nodiscard]] inline bool ReadWrapper(const void* pointer, FatbinWrapper* wrapper) {
  const auto* bytes = static_cast<const uint8_t*>(pointer);
  constexpr uint8_t kMagicBytes[4] = {0xb1, 0x43, 0x62, 0x46};
  for (size_t i = 0; i < 4; ++i) {
    if (bytes[i] != kMagicBytes[i]) return false;
  }
  *wrapper = fatbin_internal::ReadAt<FatbinWrapper>(bytes);
  return true;
}

// The image that a program passes to CUDA as a bare pointer, of unknown length: wrapper (then its
// fatbin), fatbin, ELF or PTX. Trusts the caller's memory as CUDA does: a pointer to garbage is
// refused, but lengths inside it are believed.
[[nodiscard]] inline ImageError FindImage(const void* pointer, Image* image) {
  if (pointer == nullptr) return ImageError::kUnknownFormat;
  FatbinWrapper wrapper{};
  if (ReadWrapper(pointer, &wrapper)) {
    if ((wrapper.version != 1 && wrapper.version != 2) || wrapper.data == nullptr)
      return ImageError::kBadHeader;
    pointer = wrapper.data;
  }
  return fatbin_internal::Measure(static_cast<const uint8_t*>(pointer),
                                  fatbin_internal::kUnknownSize, image);
}

// The same for bytes of known length, from anywhere: nothing outside [bytes, bytes + size_bytes) is
// read, and an image cut short is kTruncated. Wrappers hold pointers and are kUnknownFormat here.
[[nodiscard]] inline ImageError FindImage(const void* bytes, size_t size_bytes, Image* image) {
  if (bytes == nullptr) return ImageError::kUnknownFormat;
  return fatbin_internal::Measure(static_cast<const uint8_t*>(bytes), size_bytes, image);
}

// Walks a fatbin's members inside known bounds. Next returns false at the end and on a broken
// member; error() tells which. Members of unknown kind are returned too.
class FatbinReader {
 public:
  FatbinReader(const void* bytes, size_t size_bytes) : bytes_(static_cast<const uint8_t*>(bytes)) {
    Image image;
    error_ =
        size_bytes >= sizeof(uint32_t) && fatbin_internal::ReadAt<uint32_t>(bytes_) != kFatbinMagic
            ? ImageError::kUnknownFormat
            : fatbin_internal::MeasureFatbin(bytes_, size_bytes, &image);
    if (error_ != ImageError::kNone) return;
    offset_ = fatbin_internal::ReadAt<FatbinHeader>(bytes_).header_bytes;
    end_ = image.size_bytes;
  }

  [[nodiscard]] bool Next(FatbinMember* member) {
    if (error_ != ImageError::kNone || offset_ >= end_) return false;
    const size_t left = end_ - offset_;
    if (left < sizeof(FatbinMemberHeader)) return Fail(ImageError::kTruncated);
    const uint8_t* start = bytes_ + offset_;
    const auto header = fatbin_internal::ReadAt<FatbinMemberHeader>(start);
    if (header.header_bytes < sizeof(FatbinMemberHeader)) return Fail(ImageError::kBadHeader);
    if (header.header_bytes > left || header.padded_payload_bytes > left - header.header_bytes) {
      return Fail(ImageError::kTruncated);
    }
    if (!LiesIn(header.options_offset, 0, header.header_bytes) ||
        !LiesIn(header.name_offset, header.name_bytes, header.header_bytes)) {
      return Fail(ImageError::kBadHeader);
    }
    const bool lz4 = (header.flags & kFatbinFlagLz4) != 0;
    const bool zstd = (header.flags & kFatbinFlagZstd) != 0;
    if (lz4 && zstd) return Fail(ImageError::kBadHeader);
    const bool packed = lz4 || zstd;
    if (packed && header.compressed_bytes > header.padded_payload_bytes)
      return Fail(ImageError::kBadHeader);
    member->kind = static_cast<FatbinMemberKind>(header.kind);
    member->compression = lz4    ? FatbinCompression::kLz4
                          : zstd ? FatbinCompression::kZstd
                                 : FatbinCompression::kNone;
    member->sm = header.sm;
    member->major = header.major;
    member->minor = header.minor;
    member->flags = header.flags;
    member->payload = start + header.header_bytes;
    member->payload_bytes = packed ? size_t{header.compressed_bytes} : header.padded_payload_bytes;
    member->uncompressed_bytes = packed ? header.uncompressed_bytes : header.padded_payload_bytes;
    offset_ += header.header_bytes + header.padded_payload_bytes;
    return true;
  }

  ImageError error() const { return error_; }

 private:
  static bool LiesIn(uint32_t offset, uint64_t bytes, uint32_t room) {
    return offset <= room && bytes <= room - offset;
  }
  bool Fail(ImageError error) {
    error_ = error;
    return false;
  }

  const uint8_t* bytes_;
  size_t offset_ = 0;
  size_t end_ = 0;
  ImageError error_;
};

}  // namespace gpuloom
