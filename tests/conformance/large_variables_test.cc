// SPDX-License-Identifier: Apache-2.0
// `__managed__` variables of a library that together are large enough to migrate: the same for program and kernels as
// small ones (managed_variables_test.cc), and as managed memory of that size for the quota.
#include "tests/conformance/large_variables.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class LargeVariables : public WithContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
    ASSERT_NO_FATAL_FAILURE(Load());
  }
  void TearDown() override {
    Unload();
    WithContext::TearDown();
  }
  void Load() {
    ASSERT_EQ(Cu().cuLibraryLoadData(&library_, kLargeVariables, nullptr, nullptr, 0, nullptr,
                                     nullptr, 0),
              CUDA_SUCCESS);
    size_t size = 0;
    ASSERT_EQ(Cu().cuLibraryGetManaged(&large_, &size, library_, "large"), CUDA_SUCCESS);
    ASSERT_EQ(size, kLargeVariableBytes);
    ASSERT_EQ(Cu().cuLibraryGetManaged(&beside_, &size, library_, "beside"), CUDA_SUCCESS);
    ASSERT_EQ(size, 4u);
    words_ = reinterpret_cast<uint32_t*>(large_);
    CUkernel kernel = nullptr;
    ASSERT_EQ(Cu().cuLibraryGetKernel(&kernel, library_, "sweep"), CUDA_SUCCESS);
    sweep_ = reinterpret_cast<CUfunction>(kernel);
  }
  void Unload() {
    if (library_ == nullptr) return;
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuLibraryUnload(library_), CUDA_SUCCESS);
    library_ = nullptr;
  }
  void Sweep(uint32_t by) {
    ASSERT_EQ(Launch(sweep_, kSweptWords / 128, 128, nullptr, by), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    ++sweeps_;
  }
  // The words that the kernel changes.
  uint32_t& Swept(size_t i) const { return words_[i * (kSweptStepBytes / 4)]; }
  uint32_t Beside() const { return *reinterpret_cast<const volatile uint32_t*>(beside_); }
  // Everything as this test has left it, where nothing but sweeps has changed `large`.
  void ExpectSum(uint32_t sum) {
    std::vector<uint32_t> expected(kLargeVariableBytes / 4, 0);
    for (size_t i = 0; i < kSweptWords; ++i) expected[i * (kSweptStepBytes / 4)] = sum;
    EXPECT_EQ(std::memcmp(words_, expected.data(), kLargeVariableBytes), 0);
    EXPECT_EQ(Beside(), kBesideBegins + sweeps_ * kSweptWords);
  }

  CUlibrary library_ = nullptr;
  CUdeviceptr large_ = 0, beside_ = 0;
  uint32_t* words_ = nullptr;
  CUfunction sweep_ = nullptr;
  uint32_t sweeps_ = 0;
};

TEST_F(LargeVariables, HostAndKernelsTakeTurns) {
  ExpectSum(0);
  for (uint32_t turn = 1; turn < 4; ++turn) {
    for (size_t i = 0; i < kSweptWords; ++i) {
      Swept(i) = static_cast<uint32_t>(i);
      (&Swept(i))[1] = turn;
    }
    ASSERT_NO_FATAL_FAILURE(Sweep(turn));
    ASSERT_NO_FATAL_FAILURE(Sweep(100));
    for (size_t i = 0; i < kSweptWords; ++i) {
      ASSERT_EQ(Swept(i), i + turn + 100) << turn;
      ASSERT_EQ((&Swept(i))[1], turn);
    }
    EXPECT_EQ(Beside(), kBesideBegins + sweeps_ * kSweptWords);
  }
}

// The kernel has had it last when the file is read into it.
TEST_F(LargeVariables, SystemCallsReachThem) {
  constexpr size_t kBytes = 32 << 10;
  const std::vector<uint32_t> sent(kBytes / 4, 6);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  ASSERT_EQ(write(ends[1], sent.data(), kBytes), ssize_t{kBytes});
  ASSERT_EQ(read(ends[0], words_ + kMiB / 4, kBytes), ssize_t{kBytes});
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  ASSERT_EQ(write(ends[1], words_ + kMiB / 4, kBytes), ssize_t{kBytes});
  std::vector<uint32_t> received(kBytes / 4);
  ASSERT_EQ(read(ends[0], received.data(), kBytes), ssize_t{kBytes});
  close(ends[0]);
  close(ends[1]);
  for (size_t i = 0; i < received.size(); ++i) {
    ASSERT_EQ(received[i], i % (kSweptStepBytes / 4) == 0 ? 7u : 6u) << i;
  }
  EXPECT_EQ(Swept(0), 2u);
}

TEST_F(LargeVariables, AreManagedMemory) {
  const auto ask = [&](CUpointer_attribute attribute) {
    uint64_t value = 0;
    EXPECT_EQ(Cu().cuPointerGetAttribute(&value, attribute, large_ + 4096), CUDA_SUCCESS)
        << attribute;
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_IS_MANAGED), 1u);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), large_ + 4096);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER), large_ + 4096);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  const auto prefetched = [&] {
    int value = 77;
    EXPECT_EQ(Cu().cuMemRangeGetAttribute(&value, sizeof(value),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, large_,
                                          kLargeVariableBytes),
              CUDA_SUCCESS);
    return value;
  };
  const CUstream stream = Stream();
  Swept(3) = 3;
  ASSERT_EQ(Cu().cuMemPrefetchAsync_v2(large_, kLargeVariableBytes, here, 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetched(), device_);
  ASSERT_EQ(Cu().cuMemPrefetchAsync(large_, kLargeVariableBytes, CU_DEVICE_CPU, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetched(), int{CU_DEVICE_CPU});
  EXPECT_EQ(Swept(3), 3u);
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  // Freed by its library alone.
  EXPECT_EQ(Cu().cuMemFree_v2(large_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Swept(3), 4u);
  EXPECT_EQ(Beside(), kBesideBegins + kSweptWords);
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  ASSERT_EQ(
      Cu().cuMemAdvise_v2(large_, kLargeVariableBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host),
      CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  EXPECT_EQ(Swept(3), 5u);
}

TEST_F(LargeVariables, AreCopiedAndFilled) {
  const CUdeviceptr plain = Alloc(kLargeVariableBytes);
  const std::vector<uint32_t> words = Pattern(kLargeVariableBytes / 4, 5);
  std::memcpy(words_, words.data(), kLargeVariableBytes);
  ASSERT_EQ(Cu().cuMemcpyDtoD_v2(plain, large_, kLargeVariableBytes), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(plain, kLargeVariableBytes / 4), words);
  ASSERT_EQ(Cu().cuMemsetD32_v2(large_, 9, kLargeVariableBytes / 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words_[kLargeVariableBytes / 8 - 1], 9u);
  EXPECT_EQ(words_[kLargeVariableBytes / 8], words[kLargeVariableBytes / 8]);
  ASSERT_EQ(Cu().cuMemcpy(large_, plain, kLargeVariableBytes), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(words_, words.data(), kLargeVariableBytes), 0);
  EXPECT_EQ(Beside(), kBesideBegins);
}

// One stream's use of one variable says nothing about the others.
TEST_F(LargeVariables, OneAttachedToAStreamIsForAllWork) {
  const CUstream own = Stream(), other = Stream();
  ASSERT_EQ(Cu().cuStreamAttachMemAsync(own, beside_, 0, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamAttachMemAsync(own, beside_, 0, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
  ASSERT_EQ(Launch(sweep_, kSweptWords / 128, 128, other, 3u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ++sweeps_;
  ExpectSum(3);
}

// Those of another library are others, and each begins with its own values.
TEST_F(LargeVariables, GoWithTheirLibrary) {
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  const CUlibrary first = library_;
  const CUdeviceptr first_large = large_;
  for (int i = 0; i < 6; ++i) {
    ASSERT_NO_FATAL_FAILURE(Load());
    EXPECT_NE(large_, first_large);
    sweeps_ = 0;
    ExpectSum(0);
    ASSERT_NO_FATAL_FAILURE(Sweep(5));
    ExpectSum(5);
    ASSERT_NO_FATAL_FAILURE(Sweep(1));
    Unload();
  }
  library_ = first;
  ASSERT_EQ(Cu().cuLibraryGetManaged(&beside_, nullptr, library_, "beside"), CUDA_SUCCESS);
  words_ = reinterpret_cast<uint32_t*>(first_large);
  sweeps_ = 1;
  ExpectSum(1);
}

// Launches send away what is at home, but not what a library begins with.
TEST_F(LargeVariables, BeginWithTheirValuesBesideLaunches) {
  std::atomic<bool> over{false};
  std::thread other([this, &over, sweep = sweep_] {
    EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    const CUstream stream = Stream();
    while (!over) {
      EXPECT_EQ(Launch(sweep, 1, 1, stream, 0u), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
  });
  const CUlibrary first = library_;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    Load();
    ExpectSum(0);
    Unload();
  }
  over = true;
  other.join();
  library_ = first;
}

// Through gpuloom: while they are the device's they count, and until then, and when they are gone, they do not.
TEST_F(LargeVariables, CountAsDeviceMemoryWhileTheyAreAway) {
  if (getenv("GPULOOM_SOCKET_DIR") == nullptr) {
    GTEST_SKIP() << "about quotas, so through gpuloom only";
  }
  if (!KernelTellsOfPageFaults()) {
    GTEST_SKIP() << "the kernel tells this process of no page faults, so nothing migrates";
  }
  const size_t before = FreeBytes();
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  const size_t away = FreeBytes();
  char name[256] = "";
  ASSERT_EQ(Cu().cuDeviceGetName(name, sizeof(name), device_), CUDA_SUCCESS);
  if (away > before - kLargeVariableBytes && std::strstr(name, "softgpu") == nullptr) {
    ExpectSum(1);
    GTEST_SKIP() << "it did not migrate: the driver did not give the address";
  }
  EXPECT_LE(away, before - kLargeVariableBytes);
  ExpectSum(1);
  Unload();
  EXPECT_GE(FreeBytes(), before);
}

// First where others need the room that they have, then where there is none for them from the beginning.
TEST_F(LargeVariables, AreInHostMemoryBeyondTheQuota) {
  if (getenv("GPULOOM_SOCKET_DIR") == nullptr) {
    GTEST_SKIP() << "about quotas, so through gpuloom only";
  }
  const size_t before = FreeBytes();
  ASSERT_NO_FATAL_FAILURE(Sweep(4));
  // Where they are in host memory already, for whatever reason, they have no room to give.
  const size_t left = FreeBytes();
  const bool are_away = left + kLargeVariableBytes <= before;
  CUdeviceptr ballast = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&ballast, are_away ? left + 2 * kMiB : left - 6 * kMiB),
            CUDA_SUCCESS);
  ExpectSum(4);
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  ExpectSum(5);
  const size_t loaded = FreeBytes();
  Unload();
  SCOPED_TRACE("free at first, then, beside the ballast, and unloaded: " + std::to_string(before) +
               ", " + std::to_string(left) + ", " + std::to_string(loaded) + ", " +
               std::to_string(FreeBytes()));
  ASSERT_NO_FATAL_FAILURE(Load());
  sweeps_ = 0;
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  ExpectSum(1);
  ASSERT_NO_FATAL_FAILURE(Sweep(1));
  ExpectSum(2);
  EXPECT_EQ(Cu().cuMemFree_v2(ballast), CUDA_SUCCESS);
}

// Through gpuloom: natively they may be elsewhere then.
TEST(LargeVariablesOfAChild, BeginAnewWithTheContext) {
  if (getenv("GPULOOM_SOCKET_DIR") == nullptr) {
    GTEST_SKIP() << "about where gpuloom puts them";
  }
  EXPECT_EQ(RunChild("variables_again"), 0);
}

}  // namespace
}  // namespace gpuloom::conformance
