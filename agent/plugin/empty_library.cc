// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/empty_library.h"

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace gpuloom {
namespace {

// i386 has pages of one size.
constexpr Elf32_Word kPageBytes = 4096;

// The file, byte by byte: what a loader looks at and nothing else, so there are no section headers.
// One segment maps all of it at address 0: file offsets are addresses.
struct Image {
  Elf32_Ehdr header;
  Elf32_Phdr segments[3];
  Elf32_Dyn dynamic[6];
  Elf32_Sym symbols[1];  // the first is always undefined
  Elf32_Word hash[4];    // one bucket, one chain, both empty
  char strings[4];
};
// Without padding, whose bytes nobody sets.
static_assert(std::has_unique_object_representations_v<Image>);

Elf32_Dyn Entry(Elf32_Sword tag, Elf32_Word value) {
  Elf32_Dyn entry = {};
  entry.d_tag = tag;
  entry.d_un.d_val = value;
  return entry;
}

}  // namespace

std::string EmptyLibrary32() {
  Image image = {};
  std::memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.header.e_ident[EI_CLASS] = ELFCLASS32;
  image.header.e_ident[EI_DATA] = ELFDATA2LSB;
  image.header.e_ident[EI_VERSION] = EV_CURRENT;
  image.header.e_type = ET_DYN;
  image.header.e_machine = EM_386;
  image.header.e_version = EV_CURRENT;
  image.header.e_phoff = offsetof(Image, segments);
  image.header.e_ehsize = sizeof(Elf32_Ehdr);
  image.header.e_phentsize = sizeof(Elf32_Phdr);
  image.header.e_phnum = 3;
  Elf32_Phdr& all = image.segments[0];
  all.p_type = PT_LOAD;
  all.p_filesz = all.p_memsz = sizeof(Image);
  all.p_flags = PF_R | PF_W;  // loaders write addresses into the dynamic section
  all.p_align = kPageBytes;
  Elf32_Phdr& dynamic = image.segments[1];
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_offset = dynamic.p_vaddr = dynamic.p_paddr = offsetof(Image, dynamic);
  dynamic.p_filesz = dynamic.p_memsz = sizeof(image.dynamic);
  dynamic.p_flags = PF_R | PF_W;
  dynamic.p_align = alignof(Elf32_Dyn);
  // Without, the program's stack would be made executable.
  Elf32_Phdr& stack = image.segments[2];
  stack.p_type = PT_GNU_STACK;
  stack.p_flags = PF_R | PF_W;
  stack.p_align = 16;
  image.dynamic[0] = Entry(DT_HASH, offsetof(Image, hash));
  image.dynamic[1] = Entry(DT_STRTAB, offsetof(Image, strings));
  image.dynamic[2] = Entry(DT_SYMTAB, offsetof(Image, symbols));
  image.dynamic[3] = Entry(DT_STRSZ, sizeof(image.strings));
  image.dynamic[4] = Entry(DT_SYMENT, sizeof(Elf32_Sym));
  image.dynamic[5] = Entry(DT_NULL, 0);
  // One bucket and one chain. Both hold 0, the undefined symbol, which ends a lookup.
  image.hash[0] = image.hash[1] = 1;
  return std::string(reinterpret_cast<const char*>(&image), sizeof(image));
}

}  // namespace gpuloom
