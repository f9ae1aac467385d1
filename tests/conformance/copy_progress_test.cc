// SPDX-License-Identifier: Apache-2.0
// What a copy needs to go on never depends on what waits for the copy, nor on other streams that wait, however much of it
// there is.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kSize = size_t{5} << 20;
constexpr size_t kSmall = size_t{64}
                          << 10;  // the most that CUDA reads at once, whatever the stream waits for

class CopyProgress : public WithKernels {
 protected:
  CUdeviceptr Upload(const std::vector<uint32_t>& words) {
    const CUdeviceptr memory = Alloc(words.size() * 4);
    EXPECT_EQ(Cu().cuMemcpyHtoD_v2(memory, words.data(), words.size() * 4), CUDA_SUCCESS);
    return memory;
  }

  // Calls `call` for each of `count` numbers on another thread, and returns when it has been called for all of them, or
  // when it does not return. The first failure ends it.
  std::thread CallUntilItWaits(size_t count, const std::function<CUresult(size_t)>& call) {
    calls_ = 0;
    done_ = false;
    std::thread caller([=, this] {
      CUresult result = Cu().cuCtxSetCurrent(context_);
      for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        result = call(i);
        ++calls_;
      }
      EXPECT_EQ(result, CUDA_SUCCESS) << calls_;
      done_ = true;
    });
    for (size_t before = SIZE_MAX; !done_ && before != calls_;) {
      before = calls_;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return caller;
  }

 private:
  std::atomic<size_t> calls_{0};
  std::atomic<bool> done_{false};
};

// Behind a copy of registered memory that is no memory of the process' own.
class BehindRegisteredMemory : public CopyProgress {
 protected:
  uint8_t* pages_ = nullptr;

  void GoesOnBehind(size_t count, const std::function<CUresult(size_t, CUstream)>& call) {
    const int file = memfd_create("registered", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, kSize), 0);
    void* mapped = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    ASSERT_NE(mapped, MAP_FAILED);
    pages_ = static_cast<uint8_t*>(mapped);
    ASSERT_EQ(Cu().cuMemHostRegister_v2(pages_, kSize, 0), CUDA_SUCCESS);
    const auto words = Pattern(kSize / 4, 1);
    const CUdeviceptr from = Upload(words);
    const CUstream stream = Stream();
    Block(stream);
    ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, from, kSize, stream), CUDA_SUCCESS);
    std::thread caller = CallUntilItWaits(count, [&](size_t i) { return call(i, stream); });
    Open();
    caller.join();
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0);
    ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
    munmap(pages_, kSize);
  }
};

TEST_F(BehindRegisteredMemory, ManyCommands) {
  const CUdeviceptr memory = Alloc(4);
  GoesOnBehind(100'000, [&](size_t i, CUstream stream) {
    return Cu().cuMemsetD32Async(memory, static_cast<unsigned>(i), 1, stream);
  });
  EXPECT_EQ(Download<uint32_t>(memory, 1), std::vector<uint32_t>{99'999});
}

TEST_F(BehindRegisteredMemory, ManyLaunches) {
  const CUdeviceptr memory = Alloc(4);
  const CUfunction increment = Function("increment");
  ASSERT_EQ(Cu().cuMemsetD32_v2(memory, 0, 1), CUDA_SUCCESS);
  GoesOnBehind(100'000,
               [&](size_t, CUstream stream) { return Launch(increment, 1, 1, stream, memory); });
  EXPECT_EQ(Download<uint32_t>(memory, 1), std::vector<uint32_t>{100'000});
}

TEST_F(BehindRegisteredMemory, ManyBytes) {
  const auto words = Pattern(kSmall / 4, 2);
  const CUdeviceptr memory = Alloc(kSmall);
  GoesOnBehind(3'000, [&](size_t, CUstream stream) {
    return Cu().cuMemcpyHtoDAsync_v2(memory, words.data(), kSmall, stream);
  });
  EXPECT_EQ(Download<uint32_t>(memory, kSmall / 4), words);
}

// Each is destroyed when the stream has come to it.
TEST_F(BehindRegisteredMemory, ManyObjects) {
  GoesOnBehind(100'000, [&](size_t, CUstream stream) {
    CUevent event = nullptr;
    CUresult result = Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = Cu().cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) result = Cu().cuEventDestroy_v2(event);
    return result;
  });
}

// In its own stream, in one that waits for that, and in one that does not.
TEST_F(BehindRegisteredMemory, ManyOfItsOwnKind) {
  constexpr size_t kCopies = 1'200;
  constexpr size_t kCommandsBetween = 100;
  const CUstream others[] = {Stream(), Stream()};
  const CUdeviceptr memory = Alloc(kSmall * 2);
  const CUevent arrived = Event();
  GoesOnBehind(kCopies * kCommandsBetween, [&](size_t i, CUstream stream) {
    const size_t round = i / kCommandsBetween;
    const CUstream in = round % 3 == 0 ? stream : others[round % 3 - 1];
    if (i % kCommandsBetween != 0) return Cu().cuMemsetD8Async(memory, 7, 1, in);
    if (round % 3 == 1) {
      CUresult result = Cu().cuEventRecord(arrived, stream);
      if (result == CUDA_SUCCESS) result = Cu().cuStreamWaitEvent(in, arrived, 0);
      if (result != CUDA_SUCCESS) return result;
    }
    return round % 2 == 0 ? Cu().cuMemcpyHtoDAsync_v2(memory, pages_, kSmall * 2, in)
                          : Cu().cuMemcpyHtoDAsync_v2(memory + 4, pages_ + 4, kSmall + 4, in);
  });
}

// A thread waits in a copy of pageable memory, for its stream.
TEST_F(CopyProgress, OfPageableMemoryWhileAnotherStreamWaits) {
  if (CountsOthers()) GTEST_SKIP() << "NVIDIA's driver makes the other wait, too";
  constexpr size_t kLarge = size_t{40} << 20;
  const CUstream waits = Stream(), other = Stream();
  std::vector<uint32_t> large = Pattern(kLarge / 4, 3);
  const CUdeviceptr there = Alloc(kLarge);
  const CUdeviceptr memory = Alloc(kSize);
  for (const bool to_device : {true, false}) {
    Block(waits);
    std::thread caller = CallUntilItWaits(1, [&](size_t) {
      return to_device ? Cu().cuMemcpyHtoDAsync_v2(there, large.data(), kLarge, waits)
                       : Cu().cuMemcpyDtoHAsync_v2(large.data(), there, kLarge, waits);
    });
    const auto words = Pattern(kSize / 4, 4 + to_device);
    EXPECT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, words.data(), kSize, other), CUDA_SUCCESS);
    std::vector<uint32_t> back(kSize / 4);
    EXPECT_EQ(Cu().cuMemcpyDtoHAsync_v2(back.data(), memory, kSize, other), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(back, words);
    // Only now.
    Open();
    caller.join();
    EXPECT_EQ(Cu().cuStreamSynchronize(waits), CUDA_SUCCESS);
  }
  EXPECT_EQ(large, Pattern(kLarge / 4, 3));
}

// Another thread sends more to streams than they take: it waits, and no other.
class WhileOthersHaveMuch : public CopyProgress {
 protected:
  void CopiesGoOn(size_t count, const std::function<CUresult(size_t, CUstream)>& call) {
    const CUstream waits[] = {Stream(), Stream(), Stream()};
    const CUstream other = Stream();
    const auto small = Pattern(kSmall / 4, 6);
    const CUdeviceptr memory = Alloc(kSmall);
    for (const CUstream stream : waits) ASSERT_NO_FATAL_FAILURE(Block(stream));
    std::thread caller = CallUntilItWaits(count, [&](size_t i) { return call(i, waits[i % 3]); });
    for (const size_t bytes : {size_t{4}, size_t{4096}, kSmall}) {
      EXPECT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, small.data(), bytes, other), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS) << bytes;
    }
    // Only now.
    Open();
    caller.join();
    for (const CUstream stream : waits) EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(memory, kSmall / 4), small);
  }
};

// CUDA reads them at once.
TEST_F(WhileOthersHaveMuch, SmallCopies) {
  const auto small = Pattern(kSmall / 4, 7);
  const CUdeviceptr there = Alloc(kSmall);
  CopiesGoOn(90, [&](size_t, CUstream stream) {
    return Cu().cuMemcpyHtoDAsync_v2(there, small.data(), kSmall, stream);
  });
}

TEST_F(WhileOthersHaveMuch, SmallCopiesWithoutEnd) {
  const auto small = Pattern(kSmall / 4, 8);
  const CUdeviceptr there = Alloc(kSmall);
  CopiesGoOn(3'000, [&](size_t, CUstream stream) {
    return Cu().cuMemcpyHtoDAsync_v2(there, small.data(), kSmall, stream);
  });
}

TEST_F(WhileOthersHaveMuch, CommandsWithoutEnd) {
  const CUdeviceptr there = Alloc(4);
  CopiesGoOn(200'000, [&](size_t i, CUstream stream) {
    return Cu().cuMemsetD32Async(there, static_cast<unsigned>(i), 1, stream);
  });
}

}  // namespace
}  // namespace gpuloom::conformance
