// SPDX-License-Identifier: Apache-2.0
// Copies of pageable memory with copy threads: sizes around every border, many callers, fork.
#include <dirent.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shim/copy/copy_threads.h"
#include "shim/copy/staged_copy.h"
#include "shim/process/processors.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

// Also those of the instances of earlier tests.
int CountCopyThreads() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    std::string name;
    std::ifstream comm(std::string("/proc/self/task/") + task->d_name + "/comm");
    count += std::getline(comm, name) && name == "gpuloom-copy";
  }
  closedir(tasks);
  return count;
}

std::vector<uint8_t> Pattern(size_t size, uint32_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8) * 7);
  return bytes;
}

// However many processors the machine has.
template <int kThreads>
class WithThreads : public ShimTest {
 protected:
  void SetUp() override {
    setenv("GPULOOM_COPY_THREADS", std::to_string(kThreads).c_str(), 1);
    Begin();
  }
  void TearDown() override { unsetenv("GPULOOM_COPY_THREADS"); }
};
using PageableCopies = WithThreads<100>;
using PageableCopiesAlone = WithThreads<0>;

TEST_F(PageableCopies, EveryBorder) {
  constexpr uint64_t kAll = uint64_t{kStagingBytes} * kStagingBuffers;
  uint32_t seed = 0;
  for (const uint64_t border :
       {uint64_t{4} << 10, uint64_t{kSmallStagingBytes}, uint64_t{kStagingBytes} / 2,
        uint64_t{kStagingBytes}, kHelpedBytes, kWakingBytes, kAll, 2 * kAll + kStagingBytes}) {
    for (const uint64_t size : {border - 1, border, border + 1}) {
      const CUdeviceptr device = Alloc(size);
      const std::vector<uint8_t> original = Pattern(size, ++seed);
      std::vector<uint8_t> source = original;
      ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, source.data(), size, nullptr), CUDA_SUCCESS);
      std::fill(source.begin(), source.end(), uint8_t{0xee});
      std::vector<uint8_t> back(size);
      ASSERT_EQ(cu_.cuMemcpyDtoH_v2(back.data(), device, size), CUDA_SUCCESS);
      EXPECT_EQ(back, original) << size;
      EXPECT_EQ(cu_.cuMemFree_v2(device), CUDA_SUCCESS);
    }
  }
}

TEST_F(PageableCopies, ThreadsStartWithTheFirstLargeCopyAndAreFew) {
  const int before = CountCopyThreads();
  const std::vector<uint8_t> bytes(kWakingBytes);
  const CUdeviceptr device = Alloc(bytes.size());
  ASSERT_EQ(cu_.cuMemcpyHtoD_v2(device, bytes.data(), bytes.size() - 1), CUDA_SUCCESS);
  EXPECT_EQ(CountCopyThreads(), before);
  ASSERT_EQ(cu_.cuMemcpyHtoD_v2(device, bytes.data(), bytes.size()), CUDA_SUCCESS);
  for (int i = 0; i < 60'000 && CountCopyThreads() < before + int{kMostCopyThreads}; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // they name themselves
  }
  EXPECT_EQ(CountCopyThreads(), before + int{kMostCopyThreads});
}

TEST_F(PageableCopiesAlone, NoThreadStarts) {
  const int before = CountCopyThreads();
  for (const uint64_t size : {3 * kWakingBytes, (uint64_t{32} << 20) + 77}) {
    const std::vector<uint8_t> source = Pattern(size, 1);
    std::vector<uint8_t> back(size + 1);
    const CUdeviceptr device = Alloc(size);
    ASSERT_EQ(cu_.cuMemcpyHtoD_v2(device, source.data(), size), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuMemcpyDtoH_v2(back.data() + 1, device, size), CUDA_SUCCESS);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), back.begin() + 1)) << size;
  }
  EXPECT_EQ(CountCopyThreads(), before);
}

TEST_F(PageableCopies, ManyCallersAtOnce) {
  std::vector<std::thread> callers;
  for (uint32_t i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
      const size_t size = kWakingBytes * (i + 1) + i;
      const CUdeviceptr device = Alloc(size);
      for (uint32_t round = 0; round < 4; ++round) {
        const std::vector<uint8_t> original = Pattern(size, 100 * i + round);
        std::vector<uint8_t> source = original;
        std::vector<uint8_t> back(size);
        EXPECT_EQ(cu_.cuMemcpyHtoDAsync_v2_ptsz(device, source.data(), size, nullptr),
                  CUDA_SUCCESS);
        std::fill(source.begin(), source.end(), uint8_t{0xee});
        EXPECT_EQ(cu_.cuMemcpyDtoH_v2_ptds(back.data(), device, size), CUDA_SUCCESS);
        EXPECT_EQ(back, original);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(PageableCopies, AForkedChildIsRefusedAndTheParentGoesOn) {
  const size_t size = 4 * kWakingBytes;
  const CUdeviceptr device = Alloc(size);
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread copying([&] {
    ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    const std::vector<uint8_t> source = Pattern(size, 5);
    while (!stop) {
      std::vector<uint8_t> back(size);
      EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device, source.data(), size), CUDA_SUCCESS);
      EXPECT_EQ(cu_.cuMemcpyDtoH_v2(back.data(), device, size), CUDA_SUCCESS);
      EXPECT_EQ(back, source);
      ++rounds;
    }
  });
  std::vector<uint8_t> none(size);
  for (int i = 0; i < 5; ++i) {
    for (const int before = rounds; rounds == before;) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      _exit(cu_.cuMemcpyHtoD_v2(device, none.data(), size) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  copying.join();
}

TEST_F(PageableCopies, SmallOnesNeverWaitForTheDevice) {
  const CUdeviceptr device = Alloc(kSmallStagingBytes);
  node_.HoldCompletions(true);
  for (uint32_t i = 0; i < 2 * kSmallStagingBuffers; ++i) {
    std::vector<uint8_t> source = Pattern(8192, i);
    ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, source.data(), source.size(), nullptr),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  node_.HoldCompletions(false);
  ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("Copy"), kSmallStagingBuffers);
  EXPECT_EQ(node_.count("CopyInline"), kSmallStagingBuffers);
  std::vector<uint8_t> back(8192);
  ASSERT_EQ(cu_.cuMemcpyDtoH_v2(back.data(), device, back.size()), CUDA_SUCCESS);
  EXPECT_EQ(back, Pattern(8192, 2 * kSmallStagingBuffers - 1));
}

// What is left of 64 MiB when the program has pinned the rest.
class PageableCopiesWithLittlePinned : public WithThreads<2>,
                                       public ::testing::WithParamInterface<uint64_t> {};

TEST_P(PageableCopiesWithLittlePinned, FewerBuffersDo) {
  void* pinned = nullptr;
  ASSERT_EQ(cu_.cuMemHostAlloc(&pinned, (uint64_t{64} << 20) - GetParam(), 0), CUDA_SUCCESS);
  for (const uint64_t size : {uint64_t{kSmallStagingBytes}, 3 * kWakingBytes + 1}) {
    const CUdeviceptr device = Alloc(size);
    const std::vector<uint8_t> source = Pattern(size, 3);
    std::vector<uint8_t> back(size);
    ASSERT_EQ(cu_.cuMemcpyHtoD_v2(device, source.data(), size), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuMemcpyDtoH_v2(back.data(), device, size), CUDA_SUCCESS);
    EXPECT_EQ(back, source);
  }
}
// Each in a stream of its own, and without buffers of their own beyond the few.
TEST_P(PageableCopiesWithLittlePinned, ManyCallersShareThem) {
  void* pinned = nullptr;
  ASSERT_EQ(cu_.cuMemHostAlloc(&pinned, (uint64_t{64} << 20) - GetParam(), 0), CUDA_SUCCESS);
  std::vector<std::thread> callers;
  for (uint32_t i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
      const CUdeviceptr device = Alloc(3 * kWakingBytes);
      for (uint32_t round = 0; round < 3; ++round) {
        const std::vector<uint8_t> source = Pattern(3 * kWakingBytes, 100 * i + round);
        std::vector<uint8_t> back(source.size());
        EXPECT_EQ(cu_.cuMemcpyHtoDAsync_v2_ptsz(device, source.data(), source.size(), nullptr),
                  CUDA_SUCCESS);
        EXPECT_EQ(cu_.cuMemcpyDtoH_v2_ptds(back.data(), device, back.size()), CUDA_SUCCESS);
        EXPECT_EQ(back, source);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

INSTANTIATE_TEST_SUITE_P(Left, PageableCopiesWithLittlePinned,
                         testing::Values(uint64_t{kStagingBytes}, 3 * uint64_t{kStagingBytes},
                                         uint64_t{4} << 20));

TEST(Processors, WhatACgroupGrants) {
  EXPECT_EQ(ProcessorsOfCpuMax("max 100000\n"), 0u);
  EXPECT_EQ(ProcessorsOfCpuMax("200000 100000\n"), 2u);
  EXPECT_EQ(ProcessorsOfCpuMax("150000 100000"), 2u);
  EXPECT_EQ(ProcessorsOfCpuMax("1000 100000"), 1u);
  EXPECT_EQ(ProcessorsOfCpuMax(""), 0u);
  EXPECT_EQ(ProcessorsOfCpuMax("100000"), 0u);
  EXPECT_EQ(ProcessorsOfCpuMax("-1 100000"), 0u);
  EXPECT_GE(CountProcessors(), 1u);
}

}  // namespace
}  // namespace gpuloom
