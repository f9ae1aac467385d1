// SPDX-License-Identifier: Apache-2.0
// Images built by hand, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "proto/cuda/fatbin.h"

namespace gpuloom::testing_images {

// For a linked cubin whose sections are at `section_offset`; section number `section_names` has
// their names.
inline fatbin_internal::ElfHeader CubinHeader(uint64_t section_offset, uint16_t section_count,
                                              uint16_t section_names) {
  fatbin_internal::ElfHeader header{};
  constexpr uint8_t kBegin[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  std::memcpy(header.ident, kBegin, sizeof(kBegin));
  // For sm_90, as CUDA 13 writes it.
  header.ident[8] = 8;
  header.flags = 90 << 8;
  header.type = 2;
  header.machine = fatbin_internal::kElfMachineCuda;
  header.header_bytes = sizeof(header);
  header.section_offset = section_offset;
  header.section_entry_bytes = sizeof(fatbin_internal::ElfSection);
  header.section_count = section_count;
  header.section_names = section_names;
  return header;
}

// A fatbin with these members, uncompressed, each padded with NULs to a multiple of 8: for sm_90, or for those given.
inline std::vector<uint8_t> PlainFatbin(FatbinMemberKind kind,
                                        const std::vector<std::string_view>& members,
                                        uint64_t flags = 0, const std::vector<uint32_t>& sms = {}) {
  std::vector<uint8_t> fatbin(sizeof(FatbinHeader));
  const auto append = [&](const void* bytes, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(bytes);
    fatbin.insert(fatbin.end(), begin, begin + size);
  };
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string_view member = members[i];
    FatbinMemberHeader header{};
    header.kind = static_cast<uint16_t>(kind);
    header.version = 0x0101;
    header.header_bytes = sizeof(header);
    header.padded_payload_bytes = (member.size() + 7) & ~size_t{7};
    header.sm = i < sms.size() ? sms[i] : 90;
    header.flags = flags;
    append(&header, sizeof(header));
    append(member.data(), member.size());
    fatbin.resize(fatbin.size() + header.padded_payload_bytes - member.size());
  }
  const FatbinHeader header{kFatbinMagic, 1, sizeof(FatbinHeader), fatbin.size() - sizeof(header)};
  std::memcpy(fatbin.data(), &header, sizeof(header));
  return fatbin;
}

}  // namespace gpuloom::testing_images
