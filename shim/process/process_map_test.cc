// SPDX-License-Identifier: Apache-2.0
#include "shim/process/process_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace gpuloom {
namespace {

constexpr size_t kPage = 4096;

// Both ways to ask must say the same; a kernel that cannot be queried is asked by text both times.
class ProcessMapTest : public testing::TestWithParam<ProcessMap::By> {
 protected:
  static uint64_t AddressOf(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

  static Mapped Find(const void* address) {
    ProcessMap map(GetParam());
    EXPECT_TRUE(map.is_known());
    Mapped mapped = {};
    EXPECT_TRUE(map.Find(AddressOf(address), &mapped));
    return mapped;
  }
};

TEST_P(ProcessMapTest, TellsProtectionAndBounds) {
  constexpr int kKinds[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
  void* memory = mmap(nullptr, 5 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* begin = static_cast<char*>(memory);
  for (const int kind : kKinds) {
    ASSERT_EQ(mprotect(begin + kPage, 3 * kPage, kind), 0);
    const Mapped mapped = Find(begin + 2 * kPage + 5);
    EXPECT_EQ(mapped.readable, (kind & PROT_READ) != 0);
    EXPECT_EQ(mapped.writable, (kind & PROT_WRITE) != 0);
    EXPECT_TRUE(mapped.is_private);
    EXPECT_EQ(mapped.inode, 0u);
    EXPECT_FALSE(mapped.is_heap || mapped.is_stack);
    if (kind == PROT_NONE) continue;  // one with what lies around it
    EXPECT_EQ(mapped.begin, AddressOf(begin + kPage));
    EXPECT_EQ(mapped.end, AddressOf(begin + 4 * kPage));
  }
  ASSERT_EQ(munmap(memory, 5 * kPage), 0);
}

TEST_P(ProcessMapTest, TellsAFilesPlace) {
  const int file = memfd_create("process-map-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 4 * kPage), 0);
  void* memory = mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, file, kPage);
  ASSERT_NE(memory, MAP_FAILED);
  const Mapped mapped = Find(memory);
  EXPECT_FALSE(mapped.is_private);
  EXPECT_EQ(mapped.file_offset, kPage);
  EXPECT_NE(mapped.inode, 0u);
  ASSERT_EQ(munmap(memory, 2 * kPage), 0);
  close(file);
}

TEST_P(ProcessMapTest, KnowsTheHeap) {
  auto* end = static_cast<char*>(sbrk(0));
  ASSERT_NE(sbrk(static_cast<intptr_t>(2 * kPage)), reinterpret_cast<void*>(-1));
  EXPECT_TRUE(Find(end + kPage).is_heap);
}

TEST_P(ProcessMapTest, GoesOnToTheNext) {
  void* memory = mmap(nullptr, 3 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* begin = static_cast<char*>(memory);
  ASSERT_EQ(mprotect(begin + kPage, kPage, PROT_NONE), 0);
  ProcessMap map(GetParam());
  Mapped mapped;
  ASSERT_TRUE(map.Find(AddressOf(begin), &mapped));
  EXPECT_EQ(mapped.end, AddressOf(begin + kPage));
  ASSERT_TRUE(map.Find(mapped.end, &mapped));
  EXPECT_EQ(mapped.begin, AddressOf(begin + kPage));
  EXPECT_FALSE(map.Find(~uint64_t{0} - kPage, &mapped));
  munmap(begin, 3 * kPage);
}

INSTANTIATE_TEST_SUITE_P(Ways, ProcessMapTest,
                         testing::Values(ProcessMap::By::kQuery, ProcessMap::By::kText),
                         [](const auto& info) {
                           return info.param == ProcessMap::By::kQuery ? "Query" : "Text";
                         });

}  // namespace
}  // namespace gpuloom
