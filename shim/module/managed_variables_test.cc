// SPDX-License-Identifier: Apache-2.0
// Where a library's managed variables are: in the arena, or in memory that migrates.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "proto/wire/managed_memory_commands.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

constexpr uint32_t kLeast = 1u << 20;

bool KernelTellsOfPageFaults() {
  int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  if (fd < 0) fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

class ManagedVariables : public ShimTest {
 protected:
  // A library whose variables take so much.
  CUlibrary Load(uint32_t managed_bytes) {
    static constexpr char kImage[] = ".version 8.0 // variables";
    node_.AnswerLoadWith(0, "", managed_bytes);
    CUlibrary library = nullptr;
    CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
    void* value = reinterpret_cast<void*>(uintptr_t{1});
    EXPECT_EQ(cu_.cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, &option, &value, 1),
              CUDA_SUCCESS);
    return library;
  }
  // All of them are zero where the executor finds them, before it writes anything there.
  static void ExpectZeros(wire::HostPtr values, uint32_t managed_bytes) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values);
    EXPECT_TRUE(std::all_of(bytes, bytes + managed_bytes, [](uint8_t byte) { return byte == 0; }));
  }
  void ExpectInArena() {
    EXPECT_EQ(node_.count("LibraryPlace"), 1u);
    EXPECT_EQ(node_.count("LibraryPlaceApart"), 0u);
  }
  wire::LibraryPlaceApart::Request LastApart() {
    return node_.seen("LibraryPlaceApart").back().As<wire::LibraryPlaceApart>();
  }
};

TEST_F(ManagedVariables, SmallOnesAreInTheArena) {
  Begin();
  const CUlibrary library = Load(kLeast - 1);
  ExpectInArena();
  ExpectZeros(node_.seen("LibraryPlace")[0].As<wire::LibraryPlace>().place, kLeast - 1);
  EXPECT_EQ(node_.count("ManagedSpace"), 0u);
  EXPECT_EQ(cu_.cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(ManagedVariables, LargeOnesMigrate) {
  if (!KernelTellsOfPageFaults()) GTEST_SKIP() << "the kernel tells this process of no page faults";
  Begin();
  const CUlibrary library = Load(kLeast);
  ASSERT_EQ(node_.count("LibraryPlaceApart"), 1u);
  EXPECT_EQ(node_.count("LibraryPlace"), 0u);
  const auto request = LastApart();
  const auto place = static_cast<uint64_t>(request.place);
  EXPECT_EQ(place % wire::kManagedStepBytes, 0u);
  const wire::Welcome welcome = node_.welcome();
  EXPECT_GE(place, welcome.host_range_begin + TestingNode::kHostBytes / 4 * 3);
  EXPECT_LT(place, welcome.host_range_begin + TestingNode::kHostBytes);
  EXPECT_LT(static_cast<uint64_t>(request.values),
            welcome.host_range_begin + TestingNode::kHostBytes / 4 * 3);
  ExpectZeros(request.values, kLeast);
  // The program sees what is written where the values go.
  *reinterpret_cast<volatile uint32_t*>(static_cast<uint64_t>(request.values) + kLeast - 4) = 7;
  EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(place + kLeast - 4), 7u);
  EXPECT_EQ(cu_.cuLibraryUnload(library), CUDA_SUCCESS);
  // What it had is free: so much more than the limit of pinned memory would not fit otherwise.
  for (int i = 0; i < 5; ++i) {
    const CUlibrary next = Load(16u << 20);
    EXPECT_EQ(node_.count("LibraryPlace"), 0u);
    EXPECT_EQ(cu_.cuLibraryUnload(next), CUDA_SUCCESS);
  }
}

TEST_F(ManagedVariables, StayInTheArenaWithAnOlderNode) {
  wire::Welcome welcome = node_.welcome();
  welcome.minor = 6;
  node_.set_welcome(welcome);
  Begin();
  Load(kLeast);
  ExpectInArena();
}

TEST_F(ManagedVariables, StayInTheArenaIfTheProgramWantsIt) {
  setenv("GPULOOM_MANAGED_MEMORY", "host", 1);
  Begin();
  unsetenv("GPULOOM_MANAGED_MEMORY");
  Load(kLeast);
  ExpectInArena();
}

TEST_F(ManagedVariables, KeepTheirAddressesThroughAReset) {
  if (!KernelTellsOfPageFaults()) GTEST_SKIP() << "the kernel tells this process of no page faults";
  Begin();
  const CUlibrary library = Load(kLeast);
  const auto before = LastApart();
  auto* first = reinterpret_cast<volatile uint32_t*>(static_cast<uint64_t>(before.place));
  *first = 7;
  ASSERT_EQ(cu_.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  *first = 8;
  Begin();
  CUkernel kernel = nullptr;
  ASSERT_EQ(cu_.cuLibraryGetKernel(&kernel, library, "none"), CUDA_SUCCESS);
  ASSERT_EQ(node_.count("LibraryPlaceApart"), 2u);
  EXPECT_EQ(LastApart().place, before.place);
  ExpectZeros(LastApart().values, kLeast);
  EXPECT_EQ(*first, 0u);
}

}  // namespace
}  // namespace gpuloom
