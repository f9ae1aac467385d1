// SPDX-License-Identifier: Apache-2.0
// What becomes of registered memory, as the node sees it: one command where its pages were moved, and
// pieces behind a host function where they stayed.
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/wire/host_memory_commands.h"
#include "shim/copy/staging.h"
#include "shim/process/locked_memory.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

constexpr size_t kSize = size_t{3} << 20;

// A ring of io_uring that has pinned the pages, or -1.
int PinByOther(void* pages, size_t size) {
  io_uring_params params = {};
  const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 4, &params));
  iovec buffer = {pages, size};
  if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
    return -1;
  }
  return ring;
}

class RegisteredMemoryTest : public ShimTest {
 protected:
  ~RegisteredMemoryTest() override {
    if (pages_ != nullptr) munmap(pages_, kSize);
  }
  void Map(int flags = MAP_PRIVATE) {
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    pages_ = static_cast<uint8_t*>(memory);
    for (size_t i = 0; i < kSize; ++i) pages_[i] = static_cast<uint8_t>(i * 31 + (i >> 9));
  }
  // Both ways, and that the bytes are right. Leaves what was sent in copies_.
  void CopyThereAndBack() {
    const size_t before = node_.count("Copy");
    functions_ = node_.count("HostFunction");
    const std::vector<uint8_t> bytes(pages_, pages_ + kSize);
    const CUdeviceptr device = Alloc(kSize);
    ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, pages_, kSize, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    std::memset(pages_, 0, kSize);
    ASSERT_EQ(cu_.cuMemcpyDtoHAsync_v2(pages_, device, kSize, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), pages_));
    EXPECT_EQ(cu_.cuMemFree_v2(device), CUDA_SUCCESS);
    copies_ = node_.count("Copy") - before;
    functions_ = node_.count("HostFunction") - functions_;
  }
  void ExpectMoved() {
    ASSERT_NO_FATAL_FAILURE(CopyThereAndBack());
    EXPECT_EQ(copies_, 2u);
    EXPECT_EQ(functions_, 0u);
  }
  void ExpectQueued() {
    ASSERT_NO_FATAL_FAILURE(CopyThereAndBack());
    EXPECT_GE(copies_, 2 * kSize / kStagingBytes);
    EXPECT_EQ(functions_, 2u);
  }
  CUresult Register() { return cu_.cuMemHostRegister_v2(pages_, kSize, 0); }

  uint8_t* pages_ = nullptr;
  size_t copies_ = 0;
  size_t functions_ = 0;
};

TEST_F(RegisteredMemoryTest, PrivateMemoryIsMoved) {
  Begin();
  Map();
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  // A region of exactly its size, which the node pins.
  const auto pinned = node_.seen("HostRegister");
  ASSERT_FALSE(pinned.empty());
  EXPECT_EQ(pinned.back().As<wire::HostRegister>().size_bytes, kSize);
  ExpectMoved();
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(node_.seen("HostUnregister").back().As<wire::HostUnregister>().address,
            pinned.back().As<wire::HostRegister>().address);
}

// One command for each place: neither is copied through staging.
TEST_F(RegisteredMemoryTest, RangesThatShareAPageAreMoved) {
  constexpr size_t kHalf = kSize / 2 + 100;
  Begin();
  Map();
  ASSERT_EQ(cu_.cuMemHostRegister_v2(pages_, kHalf, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuMemHostRegister_v2(pages_ + kHalf, kSize - kHalf, 0), CUDA_SUCCESS);
  const CUdeviceptr device = Alloc(kSize);
  ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, pages_, kHalf, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device + kHalf, pages_ + kHalf, kSize - kHalf, nullptr),
            CUDA_SUCCESS);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("Copy"), 3u);
  EXPECT_EQ(node_.count("HostFunction"), 0u);
  ASSERT_EQ(cu_.cuMemcpyDtoH_v2(back.data(), device, kSize), CUDA_SUCCESS);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), pages_));
  // The device's addresses of the second would be in two places.
  CUdeviceptr address = 0;
  EXPECT_EQ(cu_.cuMemHostGetDevicePointer_v2(&address, pages_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemHostGetDevicePointer_v2(&address, pages_ + kHalf, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_ + kHalf), CUDA_SUCCESS);
}

// As often as the program likes: what was given back is there again.
TEST_F(RegisteredMemoryTest, AgainAndAgain) {
  Begin();
  Map();
  for (int i = 0; i < 60; ++i) {  // three times the limit of pinned memory
    ASSERT_EQ(Register(), CUDA_SUCCESS);
    if (i % 20 == 19) ExpectMoved();
    ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  }
}

TEST_F(RegisteredMemoryTest, SharedMemoryIsQueued) {
  Begin();
  Map(MAP_SHARED);
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ExpectQueued();
  CUdeviceptr device = 0;
  EXPECT_EQ(cu_.cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

TEST_F(RegisteredMemoryTest, BeyondTheLimitItIsQueued) {
  wire::Welcome welcome = node_.welcome();
  welcome.pinned_limit_bytes = 2u << 20;
  node_.set_welcome(welcome);
  Begin();
  Map();
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ExpectQueued();
  CUdeviceptr device = 0;
  EXPECT_EQ(cu_.cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

// Where a program takes the faults that make its writers wait, nothing is moved under them.
TEST_F(RegisteredMemoryTest, AHandlerOfTheProgramsThatReplacesOurs) {
  Begin();
  Map();
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ExpectMoved();
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &before), 0);
  struct sigaction other = {};
  other.sa_handler = [](int) { _exit(99); };
  ASSERT_EQ(sigaction(SIGSEGV, &other, nullptr), 0);
  // Nor back: the program keeps the arena's pages.
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  pages_[0] = 5;
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ExpectQueued();
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
}

// Its own, or another driver's: io_uring would go on filling the pages that it knows.
TEST_F(RegisteredMemoryTest, WhileSomebodyElseHoldsPagesOfTheProcessNoneIsMoved) {
  Begin();
  Map();
  const int ring = PinByOther(pages_, kSize);
  LockedMemory memory;
  if (ring < 0 || !ReadLockedMemory(&memory) || memory.pinned_kib == 0) {
    close(ring);
    GTEST_SKIP() << "no io_uring here, or it does not count what it pins";
  }
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ExpectQueued();
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  close(ring);
}

TEST_F(RegisteredMemoryTest, WhatTheProgramProtectedStaysSo) {
  Begin();
  Map();
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  ASSERT_EQ(mprotect(pages_, 8192, PROT_NONE), 0);
  ASSERT_EQ(cu_.cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(Register(), CUDA_ERROR_INVALID_VALUE) << "still without access";
  ASSERT_EQ(mprotect(pages_, 8192, PROT_READ), 0);
  EXPECT_EQ(pages_[8191], static_cast<uint8_t>(8191 * 31 + (8191 >> 9)));
}

}  // namespace
}  // namespace gpuloom
