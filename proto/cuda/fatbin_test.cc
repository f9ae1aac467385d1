// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/fatbin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace gpuloom {
namespace {

using Bytes = std::vector<uint8_t>;

void Append(Bytes* bytes, const void* data, size_t size_bytes) {
  const auto* first = static_cast<const uint8_t*>(data);
  bytes->insert(bytes->end(), first, first + size_bytes);
}

struct MemberSpec {
  uint16_t kind;
  uint32_t header_bytes;
  uint64_t flags;
  std::string payload;
  uint64_t uncompressed_bytes;
};

Bytes MakeFatbin(const std::vector<MemberSpec>& members) {
  Bytes body;
  for (const MemberSpec& spec : members) {
    FatbinMemberHeader header{};
    header.kind = spec.kind;
    header.version = 0x101;
    header.header_bytes = spec.header_bytes;
    header.padded_payload_bytes = (spec.payload.size() + 7) / 8 * 8;
    header.compressed_bytes = spec.flags != 0x11 ? static_cast<uint32_t>(spec.payload.size()) : 0;
    header.major = 9;
    header.sm = 90;
    header.flags = spec.flags;
    header.uncompressed_bytes = spec.uncompressed_bytes;
    Append(&body, &header, sizeof(header));
    body.resize(body.size() + spec.header_bytes - sizeof(header));
    Append(&body, spec.payload.data(), spec.payload.size());
    body.resize(body.size() + header.padded_payload_bytes - spec.payload.size());
  }
  const FatbinHeader header{kFatbinMagic, 1, sizeof(FatbinHeader), body.size()};
  Bytes fatbin;
  Append(&fatbin, &header, sizeof(header));
  Append(&fatbin, body.data(), body.size());
  return fatbin;
}

Bytes TwoMembers() {
  return MakeFatbin({{1, 80, 0x8011, "packed text", 500}, {2, 64, 0x11, "elf image, plain", 0}});
}

// An ELF of one section with content, whose program headers lie last, as CUDA's do.
Bytes MakeElf(uint16_t machine) {
  fatbin_internal::ElfHeader header{};
  const uint8_t ident[16] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8};
  std::memcpy(header.ident, ident, sizeof(ident));
  header.machine = machine;
  header.section_offset = 80;
  header.section_count = 2;
  header.section_entry_bytes = 64;
  header.program_offset = 208;
  header.program_count = 1;
  header.program_entry_bytes = 56;
  fatbin_internal::ElfSection section{};
  section.type = 1;
  section.offset = 64;
  section.size = 16;
  Bytes elf;
  Append(&elf, &header, sizeof(header));
  elf.resize(144);
  Append(&elf, &section, sizeof(section));
  elf.resize(264);
  return elf;
}

constexpr char kPtx[] =
    "// made by hand\n/* for\n sm_90 */\n.version 9.0\n.target sm_90\n.address_size 64\n";

TEST(FindImage, MeasuresEachKind) {
  Image image{};
  const Bytes fatbin = TwoMembers();
  ASSERT_EQ(FindImage(fatbin.data(), &image), ImageError::kNone);
  EXPECT_EQ(image.kind, ImageKind::kFatbin);
  EXPECT_EQ(image.size_bytes, fatbin.size());

  const Bytes elf = MakeElf(190);
  ASSERT_EQ(FindImage(elf.data(), &image), ImageError::kNone);
  EXPECT_EQ(image.kind, ImageKind::kElf);
  EXPECT_EQ(image.size_bytes, elf.size());

  ASSERT_EQ(FindImage(kPtx, &image), ImageError::kNone);
  EXPECT_EQ(image.kind, ImageKind::kPtx);
  EXPECT_EQ(image.size_bytes, sizeof(kPtx) - 1);
}

TEST(FindImage, LooksThroughBothWrappers) {
  const Bytes fatbin = TwoMembers();
  const void* linked[] = {fatbin.data(), nullptr};
  for (uint32_t version : {1u, 2u}) {
    const FatbinWrapper wrapper{kFatbinWrapperMagic, version, fatbin.data(),
                                version == 2 ? linked : nullptr};
    Image image{};
    ASSERT_EQ(FindImage(&wrapper, &image), ImageError::kNone);
    EXPECT_EQ(image.kind, ImageKind::kFatbin);
    EXPECT_EQ(image.bytes, fatbin.data());
    EXPECT_EQ(image.size_bytes, fatbin.size());
    EXPECT_EQ(FindImage(&wrapper, sizeof(wrapper), &image), ImageError::kUnknownFormat);
  }
  Image image{};
  const FatbinWrapper future{kFatbinWrapperMagic, 3, fatbin.data(), nullptr};
  EXPECT_EQ(FindImage(&future, &image), ImageError::kBadHeader);
  const FatbinWrapper empty{kFatbinWrapperMagic, 1, nullptr, nullptr};
  EXPECT_EQ(FindImage(&empty, &image), ImageError::kBadHeader);
}

TEST(FindImage, RefusesWhatIsNotAnImage) {
  Image image{};
  EXPECT_EQ(FindImage(nullptr, &image), ImageError::kUnknownFormat);
  for (const char* text : {"", "hello", "/* never closed .version"}) {
    // Not a constant to the compiler, which warns of the reads that the magic number decides about.
    const char* volatile image_text = text;
    EXPECT_EQ(FindImage(image_text, &image), ImageError::kUnknownFormat) << text;
  }
  const Bytes host = MakeElf(62);
  EXPECT_EQ(FindImage(host.data(), &image), ImageError::kUnknownFormat);
}

// Every prefix lies in a heap block of exactly its size, so that a read past it is seen by
// AddressSanitizer.
TEST(FindImage, Malicious_EveryPrefixIsTruncated) {
  for (const Bytes& whole : {TwoMembers(), MakeElf(190)}) {
    for (size_t size = 4; size < whole.size(); ++size) {
      const auto cut = std::make_unique<uint8_t[]>(size);
      std::memcpy(cut.get(), whole.data(), size);
      Image image{};
      EXPECT_EQ(FindImage(cut.get(), size, &image), ImageError::kTruncated) << size;
    }
    Image image{};
    EXPECT_EQ(FindImage(whole.data(), whole.size(), &image), ImageError::kNone);
  }
}

TEST(FindImage, Malicious_LengthsThatOverflow) {
  Image image{};
  Bytes fatbin = TwoMembers();
  const uint64_t huge = UINT64_MAX - 3;
  std::memcpy(fatbin.data() + offsetof(FatbinHeader, body_bytes), &huge, sizeof(huge));
  EXPECT_EQ(FindImage(fatbin.data(), fatbin.size(), &image), ImageError::kBadHeader);
  Bytes elf = MakeElf(190);
  std::memcpy(elf.data() + offsetof(fatbin_internal::ElfHeader, section_offset), &huge,
              sizeof(huge));
  EXPECT_EQ(FindImage(elf.data(), elf.size(), &image), ImageError::kBadHeader);
}

TEST(FatbinReader, ListsMembers) {
  const Bytes fatbin = TwoMembers();
  FatbinReader reader(fatbin.data(), fatbin.size());
  FatbinMember member{};
  ASSERT_TRUE(reader.Next(&member));
  EXPECT_EQ(member.kind, FatbinMemberKind::kPtx);
  EXPECT_EQ(member.compression, FatbinCompression::kZstd);
  EXPECT_EQ(member.sm, 90u);
  EXPECT_EQ(member.payload_bytes, 11u);
  EXPECT_EQ(std::memcmp(member.payload, "packed text", 11), 0);
  EXPECT_EQ(member.uncompressed_bytes, 500u);
  ASSERT_TRUE(reader.Next(&member));
  EXPECT_EQ(member.kind, FatbinMemberKind::kElf);
  EXPECT_EQ(member.compression, FatbinCompression::kNone);
  EXPECT_EQ(member.payload_bytes, 16u);
  EXPECT_EQ(member.uncompressed_bytes, 16u);
  EXPECT_FALSE(reader.Next(&member));
  EXPECT_EQ(reader.error(), ImageError::kNone);
}

TEST(FatbinReader, Malicious_BrokenMembers) {
  FatbinMember member{};
  const size_t first = sizeof(FatbinHeader);
  {
    Bytes fatbin = TwoMembers();
    const uint32_t tiny = 8;
    std::memcpy(fatbin.data() + first + offsetof(FatbinMemberHeader, header_bytes), &tiny,
                sizeof(tiny));
    FatbinReader reader(fatbin.data(), fatbin.size());
    EXPECT_FALSE(reader.Next(&member));
    EXPECT_EQ(reader.error(), ImageError::kBadHeader);
  }
  for (uint64_t payload : {uint64_t{100000}, UINT64_MAX, UINT64_MAX - 80}) {
    Bytes fatbin = TwoMembers();
    std::memcpy(fatbin.data() + first + offsetof(FatbinMemberHeader, padded_payload_bytes),
                &payload, sizeof(payload));
    FatbinReader reader(fatbin.data(), fatbin.size());
    EXPECT_FALSE(reader.Next(&member));
    EXPECT_EQ(reader.error(), ImageError::kTruncated);
  }
  {
    Bytes fatbin = TwoMembers();
    const uint32_t compressed = 4096;
    std::memcpy(fatbin.data() + first + offsetof(FatbinMemberHeader, compressed_bytes), &compressed,
                sizeof(compressed));
    FatbinReader reader(fatbin.data(), fatbin.size());
    EXPECT_FALSE(reader.Next(&member));
    EXPECT_EQ(reader.error(), ImageError::kBadHeader);
  }
  EXPECT_EQ(FatbinReader("", 0).error(), ImageError::kTruncated);
  EXPECT_EQ(FatbinReader("no fatbin at all", 16).error(), ImageError::kUnknownFormat);
}

#ifdef GPULOOM_NVCC_IMAGES
Bytes ReadFile(const std::string& name) {
  std::ifstream file(std::string(GPULOOM_NVCC_IMAGES) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// What nvcc of the build's toolkit really makes has exactly the length that FindImage says.
TEST(Nvcc, ImagesMeasureToTheByte) {
  const struct {
    const char* name;
    ImageKind kind;
  } cases[] = {{"plain.fatbin", ImageKind::kFatbin}, {"lz4.fatbin", ImageKind::kFatbin},
               {"zstd.fatbin", ImageKind::kFatbin},  {"relocatable.fatbin", ImageKind::kFatbin},
               {"image.cubin", ImageKind::kElf},     {"image.ptx", ImageKind::kPtx}};
  for (const auto& c : cases) {
    Bytes bytes = ReadFile(c.name);
    const size_t size = bytes.size();
    Image image{};
    ASSERT_EQ(FindImage(bytes.data(), size, &image), ImageError::kNone) << c.name;
    EXPECT_EQ(image.kind, c.kind) << c.name;
    EXPECT_EQ(image.size_bytes, size) << c.name;
    bytes.push_back(0);  // PTX by bare pointer ends with a NUL
    ASSERT_EQ(FindImage(bytes.data(), &image), ImageError::kNone) << c.name;
    EXPECT_EQ(image.size_bytes, size) << c.name;
    if (c.kind == ImageKind::kPtx) continue;
    EXPECT_EQ(FindImage(bytes.data(), size / 2, &image), ImageError::kTruncated) << c.name;
  }
}

TEST(Nvcc, CompressionIsRecognised) {
  const struct {
    const char* name;
    FatbinCompression compression;
  } cases[] = {{"plain.fatbin", FatbinCompression::kNone},
               {"lz4.fatbin", FatbinCompression::kLz4},
               {"zstd.fatbin", FatbinCompression::kZstd}};
  for (const auto& c : cases) {
    const Bytes bytes = ReadFile(c.name);
    FatbinReader reader(bytes.data(), bytes.size());
    FatbinMember member{};
    int ptx = 0;
    int elf = 0;
    while (reader.Next(&member)) {
      ptx += member.kind == FatbinMemberKind::kPtx ? 1 : 0;
      elf += member.kind == FatbinMemberKind::kElf ? 1 : 0;
      EXPECT_EQ(member.sm, 90u);
      if (member.kind == FatbinMemberKind::kPtx) {
        EXPECT_EQ(member.compression, c.compression) << c.name;
      }
      Image image{};
      if (member.compression != FatbinCompression::kNone) {
        EXPECT_GT(member.uncompressed_bytes, 0u);
      } else {
        EXPECT_EQ(FindImage(member.payload, member.payload_bytes, &image), ImageError::kNone)
            << c.name;
      }
    }
    EXPECT_EQ(reader.error(), ImageError::kNone) << c.name;
    EXPECT_EQ(ptx, 1) << c.name;
    EXPECT_EQ(elf, 1) << c.name;
  }
}
#endif

}  // namespace
}  // namespace gpuloom
