// SPDX-License-Identifier: Apache-2.0
#include "proto/channel/region.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace gpuloom::channel {
namespace {

constexpr size_t kBytes = 64 << 10;
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kAddress = 0x7e90'0000'0000;  // the sanitizer's own memory lies in our windows
#else
constexpr uint64_t kAddress = 0x5123'0000'0000;
#endif

UniqueFd OpenAgain(int fd, int flags) {
  return UniqueFd(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC));
}

TEST(Region, IsSealedAgainstShrinkingGrowingAndSealing) {
  const UniqueFd memory = MakeSealedMemory("test", kBytes);
  ASSERT_TRUE(memory.valid());
  EXPECT_TRUE(IsSealedMemory(memory.get(), kBytes));
  EXPECT_FALSE(IsSealedMemory(memory.get(), kBytes + 1)) << "it is not that large";
  EXPECT_NE(ftruncate(memory.get(), 0), 0);
  EXPECT_NE(ftruncate(memory.get(), kBytes * 2), 0);
  EXPECT_NE(fcntl(memory.get(), 1033 /* F_ADD_SEALS */, 8 /* F_SEAL_WRITE */), 0);
}

TEST(Region, Malicious_AFileOrAPipeIsNoSealedMemory) {
  const UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_FALSE(file.valid() && IsSealedMemory(file.get(), 0));
  EXPECT_FALSE(IsSealedMemory(-1, 0));
  const UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(unsealed.valid());
  EXPECT_FALSE(IsSealedMemory(unsealed.get(), 0));
}

TEST(Region, AReadOnlyDescriptorMapsReadOnly) {
  const UniqueFd memory = MakeSealedMemory("test", kBytes);
  const UniqueFd read_only = ReopenReadOnly(memory.get());
  ASSERT_TRUE(read_only.valid());
  Mapping writer, reader, refused;
  ASSERT_TRUE(writer.Map(memory.get(), kBytes, Mapping::Access::kReadWrite));
  ASSERT_TRUE(reader.Map(read_only.get(), kBytes, Mapping::Access::kReadOnly));
  EXPECT_FALSE(refused.Map(read_only.get(), kBytes, Mapping::Access::kReadWrite));
  EXPECT_NE(mprotect(reader.data(), kBytes, PROT_READ | PROT_WRITE), 0);
  writer.data()[5] = 42;
  EXPECT_EQ(reader.data()[5], 42);
}

TEST(Region, Malicious_SealedWritersCannotBeReopened) {
  const UniqueFd memory = MakeFixedSizeMemory("test", kBytes);
  ASSERT_TRUE(memory.valid());
  EXPECT_TRUE(IsSealedMemory(memory.get(), kBytes));
  Mapping writer;
  ASSERT_TRUE(writer.Map(memory.get(), kBytes, Mapping::Access::kReadWrite));
  ASSERT_TRUE(SealWriters(memory.get())) << strerror(errno);
  const UniqueFd read_only = ReopenReadOnly(memory.get());
  ASSERT_TRUE(read_only.valid());
  // What a tenant could try with the read-only descriptor that it was given.
  const UniqueFd again = OpenAgain(read_only.get(), O_RDWR);
  Mapping attack;
  EXPECT_FALSE(again.valid() && attack.Map(again.get(), kBytes, Mapping::Access::kReadWrite));
  const char byte = 1;
  EXPECT_FALSE(again.valid() && pwrite(again.get(), &byte, 1, 0) == 1);
  // The writer that was there before goes on.
  writer.data()[7] = 9;
  Mapping reader;
  ASSERT_TRUE(reader.Map(read_only.get(), kBytes, Mapping::Access::kReadOnly));
  EXPECT_EQ(reader.data()[7], 9);
}

TEST(Region, MapsAtAWantedAddressOnlyWhereNothingIs) {
  const UniqueFd memory = MakeSealedMemory("test", kBytes);
  Mapping first, second;
  ASSERT_TRUE(first.MapAt(kAddress, memory.get(), kBytes, Mapping::Access::kReadWrite));
  EXPECT_EQ(reinterpret_cast<uint64_t>(first.data()), kAddress);
  EXPECT_FALSE(second.MapAt(kAddress + 4096, memory.get(), kBytes, Mapping::Access::kReadWrite));
  EXPECT_EQ(errno, EEXIST);
  EXPECT_FALSE(second.ReserveAt(kAddress, kBytes));
  EXPECT_EQ(errno, EEXIST);
  first.Unmap();
  EXPECT_TRUE(second.ReserveAt(kAddress, kBytes));
}

TEST(Region, AMappingIsMovedNotShared) {
  const UniqueFd memory = MakeSealedMemory("test", kBytes);
  Mapping a;
  ASSERT_TRUE(a.Map(memory.get(), kBytes, Mapping::Access::kReadWrite));
  uint8_t* const data = a.data();
  Mapping b(std::move(a));
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.data(), data);
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(b.size(), 0u);
}

TEST(Region, AChildDoesNotInheritIt) {
  const UniqueFd memory = MakeSealedMemory("test", kBytes);
  Mapping mapping;
  ASSERT_TRUE(mapping.MapAt(kAddress, memory.get(), kBytes, Mapping::Access::kReadWrite));
  mapping.DontFork();
  const pid_t child = fork();
  if (child == 0) {
    Mapping own;  // the address is free in the child
    _exit(own.ReserveAt(kAddress, kBytes) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Range, ContainsWithoutOverflow) {
  constexpr Range range{0x1000, 0x100};
  EXPECT_TRUE(range.Contains(0x1000, 0x100));
  EXPECT_TRUE(range.Contains(0x10ff, 1));
  EXPECT_TRUE(range.Contains(0x1100, 0));
  EXPECT_FALSE(range.Contains(0xfff, 1));
  EXPECT_FALSE(range.Contains(0x10ff, 2));
  EXPECT_FALSE(range.Contains(0x1000, UINT64_MAX));
  EXPECT_FALSE(range.Contains(UINT64_MAX, 2));
  EXPECT_FALSE(range.Contains(0x1101, 0));
}

}  // namespace
}  // namespace gpuloom::channel
