// SPDX-License-Identifier: Apache-2.0
// A built library as the loader of any container sees it: what it shows, what it asks for, what
// it runs when it is loaded. Loaders of old containers are not at hand, only Debian 12's; so all that
// the file asks of one is held to what glibc 2.17 has (2012: Red Hat 7; Ubuntu 16.04, Debian 9 and
// Amazon Linux 2 have newer ones). A preloaded library that asks for more stops every program.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace gpuloom {
namespace {

class Library : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(GPULOOM_SHIM, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(bytes_.size(), sizeof(Elf64_Ehdr)) << GPULOOM_SHIM;
    const auto* header = At<Elf64_Ehdr>(0);
    for (int i = 0; i < header->e_shnum; ++i) {
      sections_.push_back(At<Elf64_Shdr>(header->e_shoff)[i]);
    }
  }
  template <typename T>
  const T* At(uint64_t offset) const {
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  const Elf64_Shdr* Section(uint32_t type) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == type) return &section;
    }
    return nullptr;
  }
  const char* Text(const Elf64_Shdr& user, uint64_t offset) const {
    return At<char>(sections_[user.sh_link].sh_offset + offset);
  }
  std::set<std::string> Symbols(bool defined) const {
    std::set<std::string> names;
    const Elf64_Shdr* table = Section(SHT_DYNSYM);
    const auto* symbols = At<Elf64_Sym>(table->sh_offset);
    for (uint64_t i = 1; i < table->sh_size / sizeof(Elf64_Sym); ++i) {
      if ((symbols[i].st_shndx != SHN_UNDEF) == defined) {
        names.insert(Text(*table, symbols[i].st_name));
      }
    }
    return names;
  }
  std::vector<std::string> Dynamic(int64_t tag) const {
    std::vector<std::string> values;
    const Elf64_Shdr* table = Section(SHT_DYNAMIC);
    for (const auto* entry = At<Elf64_Dyn>(table->sh_offset); entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == tag) values.push_back(Text(*table, entry->d_un.d_val));
    }
    return values;
  }

  std::vector<char> bytes_;
  std::vector<Elf64_Shdr> sections_;
};

TEST_F(Library, ShowsExactlyWhatNvidiasShows) {
  std::ifstream file(GPULOOM_SYMBOLS);
  std::set<std::string> symbols;
  for (std::string name; std::getline(file, name);) symbols.insert(name);
  ASSERT_FALSE(symbols.empty()) << GPULOOM_SYMBOLS;
  EXPECT_EQ(Symbols(/*defined=*/true), symbols);
}

TEST_F(Library, IsFoundUnderNvidiasName) {
  EXPECT_EQ(Dynamic(DT_SONAME), std::vector<std::string>{GPULOOM_SONAME});
}

TEST_F(Library, NeedsTheCLibraryAndNothingElse) {
  // Both are there in every process that glibc has started, under these names since 2.1.
  const std::set<std::string> allowed = {"libc.so.6", "ld-linux-x86-64.so.2",
                                         "ld-linux-aarch64.so.1"};
  const std::vector<std::string> needed = Dynamic(DT_NEEDED);
  EXPECT_EQ(std::count(needed.begin(), needed.end(), "libc.so.6"), 1);
  for (const std::string& name : needed) EXPECT_TRUE(allowed.count(name)) << name;
}

TEST_F(Library, AsksForNoGlibcNewerThan2_17) {
  const Elf64_Shdr* table = Section(SHT_GNU_verneed);
  ASSERT_NE(table, nullptr);
  int versions = 0;
  uint64_t offset = table->sh_offset;
  for (uint32_t i = 0; i < table->sh_info; ++i) {
    const auto* need = At<Elf64_Verneed>(offset);
    uint64_t version_offset = offset + need->vn_aux;
    for (int j = 0; j < need->vn_cnt; ++j) {
      const auto* version = At<Elf64_Vernaux>(version_offset);
      // Names of another kind are of later years, such as GLIBC_ABI_DT_RELR.
      const std::string name = Text(*table, version->vna_name);
      int major = 0, minor = 0;
      ASSERT_EQ(sscanf(name.c_str(), "GLIBC_%d.%d", &major, &minor), 2) << name;
      EXPECT_TRUE(major == 2 && minor <= 17) << name;
      ++versions;
      version_offset += version->vna_next;
    }
    offset += need->vn_next;
  }
  EXPECT_GT(versions, 0);
}

TEST_F(Library, AsksForNoWorkOfTheLoaderThatOldOnesCannotDo) {
  constexpr uint32_t kCompactRelocations = 19;  // SHT_RELR, glibc 2.36
  EXPECT_EQ(Section(kCompactRelocations), nullptr);
  const Elf64_Shdr* dynamic = Section(SHT_DYNAMIC);
  ASSERT_NE(dynamic, nullptr);
  for (const auto* entry = At<Elf64_Dyn>(dynamic->sh_offset); entry->d_tag != DT_NULL; ++entry) {
    EXPECT_TRUE(entry->d_tag < 35 || entry->d_tag > 37) << "DT_RELR and its sizes";
    if (entry->d_tag == DT_FLAGS) {
      EXPECT_EQ(entry->d_un.d_val & DF_STATIC_TLS, 0u) << "no room for it where it is loaded late";
    }
  }
  // Not among these: IRELATIVE, whose functions run while the loader works; TPOFF64, which takes
  // room of the static TLS; COPY; and on x86-64 TLSDESC, which is aarch64's only way.
#if defined(__aarch64__)
  const std::set<uint64_t> allowed = {R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT,
                                      R_AARCH64_RELATIVE, R_AARCH64_TLSDESC};
#else
  const std::set<uint64_t> allowed = {R_X86_64_64,       R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
                                      R_X86_64_RELATIVE, R_X86_64_DTPMOD64, R_X86_64_DTPOFF64};
#endif
  int relocations = 0;
  for (const Elf64_Shdr& section : sections_) {
    EXPECT_NE(section.sh_type, uint32_t{SHT_REL});
    if (section.sh_type != SHT_RELA) continue;
    for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Rela); ++i, ++relocations) {
      const uint64_t kind = ELF64_R_TYPE(At<Elf64_Rela>(section.sh_offset)[i].r_info);
      EXPECT_TRUE(allowed.count(kind)) << kind;
    }
  }
  EXPECT_GT(relocations, 0);
}

TEST_F(Library, UsesNoCppRuntime) {
  for (const std::string& name : Symbols(/*defined=*/false)) {
    EXPECT_FALSE(name.rfind("_Z", 0) == 0 || name.rfind("__gxx", 0) == 0 ||
                 name.rfind("__cxa_throw", 0) == 0 || name == "dlsym")
        << name;
  }
}

TEST_F(Library, RunsNothingOfOursWhenItIsLoaded) {
  // One function each of the compiler's own start files.
  for (const uint32_t type : {SHT_INIT_ARRAY, SHT_FINI_ARRAY}) {
    const Elf64_Shdr* table = Section(type);
    if (table == nullptr) continue;
    EXPECT_LE(table->sh_size, sizeof(Elf64_Addr));
  }
  EXPECT_EQ(Section(SHT_PREINIT_ARRAY), nullptr);
}

}  // namespace
}  // namespace gpuloom
