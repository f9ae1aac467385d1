// SPDX-License-Identifier: Apache-2.0
// Managed memory: one address for host and device. The codes of wrong calls are those of driver 580
// on an H200.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Each in small allocations, and in ones that are large enough to migrate where memory does: the parameter is the least
// size.
class ManagedMemory : public WithKernels, public ::testing::WithParamInterface<size_t> {
 protected:
  void TearDown() override {
    if (context_ != nullptr) {
      EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    }
    for (const CUdeviceptr memory : managed_) EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
    WithKernels::TearDown();
  }
  static size_t Size(size_t size) { return std::max(size, GetParam()); }
  CUdeviceptr Managed(size_t size, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(Cu().cuMemAllocManaged(&memory, Size(size), flags), CUDA_SUCCESS);
    if (memory != 0) managed_.push_back(memory);
    return memory;
  }
  CUmemLocation Here() const { return {CU_MEM_LOCATION_TYPE_DEVICE, device_}; }

  std::vector<CUdeviceptr> managed_;
};

TEST_P(ManagedMemory, HostAndDeviceShareIt) {
  int supported = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device_),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
  constexpr uint32_t kCount = 100'000;
  for (const unsigned flags : {unsigned{CU_MEM_ATTACH_GLOBAL}, unsigned{CU_MEM_ATTACH_HOST}}) {
    const CUdeviceptr address = Managed(kCount * 4, flags);
    auto* words = reinterpret_cast<uint32_t*>(address);
    std::memset(words, 0, kCount * 4);
    const CUstream stream = Stream();
    ASSERT_EQ(Cu().cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(Launch(Function("fill"), (kCount + 127) / 128, 128, stream, address, 6u, kCount - 1),
              CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(words[0], 6u);
    EXPECT_EQ(words[kCount - 2], 6u);
    EXPECT_EQ(words[kCount - 1], 0u);
    words[5] = 41;
    ASSERT_EQ(Launch(Function("increment"), 1, 1, stream, address + 20), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(words[5], 42u);
  }
}

// A kernel's results go through a pipe and back, without the program touching them itself.
TEST_P(ManagedMemory, SystemCallsReachIt) {
  constexpr uint32_t kCount = 4096;
  const CUdeviceptr address = Managed(2 * kCount * 4);
  auto* words = reinterpret_cast<uint32_t*>(address);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(Launch(Function("fill"), 64, 64, nullptr, address, 6u, kCount), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(write(ends[1], words, kCount * 4), ssize_t{kCount * 4});
  ASSERT_EQ(read(ends[0], words + kCount, kCount * 4), ssize_t{kCount * 4});
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(Launch(Function("increment"), 1, 1, nullptr, address + 2 * kCount * 4 - 4),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[kCount], 6u);
  EXPECT_EQ(words[2 * kCount - 1], 7u);
}

// As runtimes of other languages do: the program takes faults itself, and goes on behind them.
TEST_P(ManagedMemory, AHandlerOfTheProgramsIsLeftAlone) {
  static void* guarded = nullptr;
  static std::atomic<int> faults{0};
  guarded = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(guarded, MAP_FAILED);
  faults = 0;
  struct sigaction ours = {}, before = {};
  ours.sa_flags = SA_SIGINFO;
  ours.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (info->si_addr != guarded || ++faults > 1) _exit(1);
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
  };
  const CUdeviceptr address = Managed(kMiB);
  auto* words = reinterpret_cast<volatile uint32_t*>(address);
  ASSERT_EQ(sigaction(SIGSEGV, &ours, &before), 0);
  for (uint32_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(Launch(Function("fill"), 64, 64, nullptr, address, i, 4096u), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(words[4095], i);
    *static_cast<volatile int*>(guarded) = 1;
  }
  EXPECT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  EXPECT_EQ(faults, 1);
  munmap(guarded, 4096);
}

TEST_P(ManagedMemory, AForkedChildEndsAndTheParentGoesOn) {
  const CUdeviceptr address = Managed(kMiB);
  auto* words = reinterpret_cast<uint32_t*>(address);
  ASSERT_EQ(Launch(Function("fill"), 64, 64, nullptr, address, 6u, 4096u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  words[0] = 41;
  ASSERT_EQ(Launch(Function("increment"), 1, 1, nullptr, address), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 42u);
  EXPECT_EQ(words[4095], 6u);
}

TEST_P(ManagedMemory, ThreadsUseTheirPartsAtOnce) {
  constexpr uint32_t kThreads = 4, kWords = 16'384, kTurns = 20;
  const CUdeviceptr address = Managed(kThreads * kWords * 4);
  const CUfunction fill = Function("fill");
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, address, fill, i] {
      EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      CUstream stream = nullptr;
      EXPECT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      const CUdeviceptr part = address + size_t{i} * kWords * 4;
      EXPECT_EQ(Cu().cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_GLOBAL),
                CUDA_SUCCESS);
      for (uint32_t turn = 1; turn <= kTurns; ++turn) {
        EXPECT_EQ(Launch(fill, kWords / 128, 128, stream, part, i * 100 + turn, kWords),
                  CUDA_SUCCESS);
        EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
      }
      EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // While kernels run, the host may not touch it: concurrentManagedAccess is 0.
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const auto* words = reinterpret_cast<const uint32_t*>(address);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(words[i * kWords], i * 100 + kTurns);
    EXPECT_EQ(words[(i + 1) * kWords - 1], i * 100 + kTurns);
  }
}

// Behind the legacy stream's work, in a stream that waits for it.
TEST_P(ManagedMemory, PrefetchingComesInItsTurn) {
  constexpr uint32_t kCount = 1000;
  const CUdeviceptr address = Managed(kCount * 4);
  const auto* words = reinterpret_cast<const uint32_t*>(address);
  const CUstream stream = Stream(CU_STREAM_DEFAULT);
  Block(nullptr);
  ASSERT_EQ(Launch(Function("fill"), 16, 64, nullptr, address, 6u, kCount), CUDA_SUCCESS);
  ASSERT_EQ(
      Cu().cuMemPrefetchAsync_v2(address, kCount * 4, {CU_MEM_LOCATION_TYPE_HOST, 0}, 0, stream),
      CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 6u);
  EXPECT_EQ(words[kCount - 1], 6u);
}

TEST_P(ManagedMemory, CopiesAndMemsets) {
  const CUdeviceptr managed = Managed(kMiB);
  const CUdeviceptr plain = Alloc(kMiB);
  const auto words = Pattern(kMiB / 4, 5);
  std::memcpy(reinterpret_cast<void*>(managed), words.data(), kMiB);
  ASSERT_EQ(Cu().cuMemcpyDtoD_v2(plain, managed, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(plain, kMiB / 4), words);
  ASSERT_EQ(Cu().cuMemsetD32_v2(managed, 9, kMiB / 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(managed + 400), 9u);
  ASSERT_EQ(Cu().cuMemcpy(managed, plain, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(managed), words.data(), kMiB), 0);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(managed, words.data() + 1, 400), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(managed), words[1]);
  EXPECT_EQ(Download<uint32_t>(managed, 100),
            std::vector<uint32_t>(words.begin() + 1, words.begin() + 101));
}

// Where the host may look at once, a plain memset is over when it returns, and all that is before it.
TEST_P(ManagedMemory, AMemsetIsDoneWhenItReturns) {
  const CUdeviceptr address = Managed(4096);
  auto* words = reinterpret_cast<uint32_t*>(address);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(4096));
  for (uint32_t value = 1; value < 4; ++value) {
    ASSERT_EQ(Launch(Function("spin"), 1, 1, nullptr, uint64_t{10'000'000}), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD32_v2(address, value, 1024), CUDA_SUCCESS);
    EXPECT_EQ(words[1023], value);
    ASSERT_EQ(Launch(Function("spin"), 1, 1, nullptr, uint64_t{10'000'000}), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD2D32_v2(address, 64, value + 10, 8, 64), CUDA_SUCCESS);
    EXPECT_EQ(words[63 * 16 + 7], value + 10);
    ASSERT_EQ(Launch(Function("spin"), 1, 1, nullptr, uint64_t{10'000'000}), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD32_v2(reinterpret_cast<CUdeviceptr>(pinned), value, 1024),
              CUDA_SUCCESS);
    EXPECT_EQ(pinned[1023], value);
  }
}

TEST_P(ManagedMemory, PointerAttributes) {
  const CUdeviceptr address = Managed(5000);
  const auto ask = [&](CUpointer_attribute attribute) {
    uint64_t value = 0;
    EXPECT_EQ(Cu().cuPointerGetAttribute(&value, attribute, address + 10), CUDA_SUCCESS)
        << attribute;
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_IS_MANAGED), 1u);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), address + 10);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER), address + 10);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), address);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), Size(5000));
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT), reinterpret_cast<uint64_t>(context_));
  unsigned managed = 7;
  EXPECT_EQ(Cu().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, Alloc(100)),
            CUDA_SUCCESS);
  EXPECT_EQ(managed, 0u);
}

TEST_P(ManagedMemory, AdviceIsRemembered) {
  const CUdeviceptr address = Managed(kMiB);
  const auto ask = [&](CUmem_range_attribute attribute) {
    int value = 77;
    EXPECT_EQ(Cu().cuMemRangeGetAttribute(&value, sizeof(value), attribute, address, kMiB),
              CUDA_SUCCESS)
        << attribute;
    return value;
  };
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), int{CU_DEVICE_INVALID});
  ASSERT_EQ(Cu().cuMemAdvise_v2(address, kMiB, CU_MEM_ADVISE_SET_READ_MOSTLY, Here()),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
  ASSERT_EQ(Cu().cuMemAdvise(address, kMiB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device_),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  ASSERT_EQ(Cu().cuMemAdvise_v2(address, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), int{CU_DEVICE_CPU});
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemPrefetchAsync_v2(address, kMiB, Here(), 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemPrefetchAsync(address, kMiB, CU_DEVICE_CPU, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), int{CU_DEVICE_CPU});
}

TEST_P(ManagedMemory, PrefetchesInBatches) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  CUdeviceptr both[] = {Managed(kMiB), Managed(kMiB)};
  size_t sizes[] = {kMiB, 4096};
  CUmemLocation places[] = {Here(), {CU_MEM_LOCATION_TYPE_HOST, 0}};
  size_t first[] = {0, 1};
  const CUstream stream = Stream();
  const auto place_of = [&](int which) {
    int place = 77;
    EXPECT_EQ(Cu().cuMemRangeGetAttribute(&place, sizeof(place),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                          both[which], 4096),
              CUDA_SUCCESS);
    return place;
  };
  for (const CUdeviceptr memory : both) {
    *reinterpret_cast<uint32_t*>(memory) = 5;
  }
  ASSERT_EQ(Cu().cuMemPrefetchBatchAsync(both, sizes, 2, places, first, 2, 0, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(place_of(0), device_);
  EXPECT_EQ(place_of(1), int{CU_DEVICE_CPU});
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(both[0]), 5u);
  // One place for all of them.
  ASSERT_EQ(Cu().cuMemPrefetchBatchAsync(both, sizes, 2, places, first, 1, 0, CU_STREAM_PER_THREAD),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(place_of(1), device_);
  // What is written after a discard is there.
  ASSERT_EQ(Cu().cuMemDiscardBatchAsync(both, sizes, 2, 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(both[0], 8, kMiB / 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(
      Cu().cuMemDiscardAndPrefetchBatchAsync(both + 1, sizes + 1, 1, places, first, 1, 0, stream),
      CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(both[1], 9, 1024, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(both[0] + 400), 8u);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(both[1] + 400), 9u);
}

TEST_P(ManagedMemory, BatchesAreNoPartOfAGraph) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  CUdeviceptr memory = Managed(kMiB);
  size_t size = kMiB;
  CUmemLocation place = Here();
  size_t first = 0;
  const CUstream stream = Stream();
  for (const bool discard : {false, true}) {
    ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(discard
                  ? Cu().cuMemDiscardBatchAsync(&memory, &size, 1, 0, stream)
                  : Cu().cuMemPrefetchBatchAsync(&memory, &size, 1, &place, &first, 1, 0, stream),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_P(ManagedMemory, WrongBatches) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  CUdeviceptr both[] = {Managed(kMiB), Managed(kMiB)};
  CUdeviceptr mixed[] = {both[0], Alloc(kMiB)};
  size_t sizes[] = {kMiB, 4096}, nothing[] = {kMiB, 0}, large[] = {kMiB, 2 * Size(kMiB)};
  CUmemLocation places[] = {Here(), {CU_MEM_LOCATION_TYPE_HOST, 0}};
  CUmemLocation far[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 99}, places[1]};
  CUmemLocation nowhere[] = {{CU_MEM_LOCATION_TYPE_INVALID, 0}, places[1]};
  size_t first[] = {0, 1}, late[] = {1, 1}, equal[] = {0, 0}, beyond[] = {0, 2};
  const CUstream stream = Stream();
  const auto prefetch = [&](CUdeviceptr* memory, size_t* size, size_t count, CUmemLocation* to,
                            size_t* from, size_t place_count, unsigned long long flags,
                            CUstream where) {
    return Cu().cuMemPrefetchBatchAsync(memory, size, count, to, from, place_count, flags, where);
  };
  constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(prefetch(both, sizes, 2, places, first, 2, 1, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 0, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(nullptr, sizes, 2, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, nullptr, 2, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, nullptr, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, nullptr, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, first, 0, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, late, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, equal, 2, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetch(both, sizes, 2, places, beyond, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, first, 2, 0, nullptr), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, places, first, 2, 0, CU_STREAM_LEGACY), kInvalid);
  EXPECT_EQ(prefetch(mixed, sizes, 2, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, nothing, 2, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, large, 2, places, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, far, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(prefetch(both, sizes, 2, nowhere, first, 2, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(both, sizes, 2, 1, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(both, sizes, 0, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(nullptr, sizes, 2, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(both, nullptr, 2, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(mixed, sizes, 2, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(both, sizes, 2, 0, nullptr), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardBatchAsync(both, nothing, 2, 0, stream), kInvalid);
  EXPECT_EQ(Cu().cuMemDiscardAndPrefetchBatchAsync(mixed, sizes, 2, places, first, 2, 0, stream),
            kInvalid);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_P(ManagedMemory, WrongCalls) {
  CUdeviceptr none = 0;
  EXPECT_EQ(Cu().cuMemAllocManaged(&none, kMiB, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAllocManaged(&none, kMiB, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAllocManaged(&none, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAllocManaged(nullptr, 16, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr managed = Managed(kMiB);
  const CUdeviceptr plain = Alloc(kMiB);
  const auto advise = [&](CUdeviceptr address, size_t size, int advice, CUmemLocation location) {
    return Cu().cuMemAdvise_v2(address, size, static_cast<CUmem_advise>(advice), location);
  };
  CUmemLocation nowhere = Here();
  nowhere.id = 99;
  EXPECT_EQ(advise(managed, kMiB, 99, Here()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(0x1000, kMiB, 1, Here()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(managed, 0, 1, Here()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(managed, 64 * kMiB, 1, Here()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(plain, kMiB, 1, Here()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(managed, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere),
            CUDA_ERROR_INVALID_VALUE);
  const CUstream stream = Stream();
  EXPECT_EQ(Cu().cuMemPrefetchAsync_v2(managed, kMiB, nowhere, 0, stream),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuMemPrefetchAsync_v2(managed, kMiB, Here(), 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPrefetchAsync_v2(managed, 0, Here(), 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPrefetchAsync_v2(plain, kMiB, Here(), 0, stream), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_EQ(Cu().cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 16),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 16),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      Cu().cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 16),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_SINGLE),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamAttachMemAsync(stream, managed, 4096, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamAttachMemAsync(stream, plain, 0, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(managed + 256), CUDA_ERROR_INVALID_VALUE);
}

// Kernels write some words, the program others, in turn and all over the range.
TEST_P(ManagedMemory, EverybodySeesWhatTheOtherWrote) {
  const size_t count = Size(kMiB) / 4;
  const CUdeviceptr address = Managed(count * 4);
  auto* words = reinterpret_cast<uint32_t*>(address);
  std::vector<uint32_t> expected = Pattern(count, 1);
  std::memcpy(words, expected.data(), count * 4);
  uint32_t random = 7;
  const auto next = [&random](uint32_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  for (uint32_t turn = 1; turn <= 40; ++turn) {
    const uint32_t begin = next(static_cast<uint32_t>(count) - 64);
    const uint32_t length = 1 + next(static_cast<uint32_t>(count) - begin);
    ASSERT_EQ(Launch(Function("fill"), (length + 127) / 128, 128, nullptr, address + begin * 4ull,
                     turn, length),
              CUDA_SUCCESS);
    std::fill_n(expected.begin() + begin, length, turn);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) {
      const uint32_t at = next(static_cast<uint32_t>(count));
      EXPECT_EQ(words[at], expected[at]) << at << " in turn " << turn;
      const uint32_t to = next(static_cast<uint32_t>(count));
      words[to] = expected[to] = turn * 1000;
    }
  }
  EXPECT_EQ(std::memcmp(words, expected.data(), count * 4), 0);
}

TEST_P(ManagedMemory, ATouchWaitsForTheProgramsKernels) {
  int at_once = 1;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&at_once, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device_),
      CUDA_SUCCESS);
  if (at_once != 0) GTEST_SKIP() << "this device lets host and kernels touch it at once";
  if (GetParam() == 0) GTEST_SKIP() << "small allocations are the same pages for both";
  // It is in host memory while others hold what there is of the device's: one of several does migrate.
  int waited = 0;
  for (int i = 0; i < 20 && waited != 4; ++i) {
    const CUdeviceptr address = Managed(kMiB);
    const auto* words = reinterpret_cast<const volatile uint32_t*>(address);
    waited = 0;
    for (uint32_t value = 1; value < 9; ++value) {
      ASSERT_EQ(Launch(Function("spin"), 1, 1, nullptr, uint64_t{20'000'000}), CUDA_SUCCESS);
      ASSERT_EQ(Launch(Function("fill"), 64, 64, nullptr, address, value, 4096u), CUDA_SUCCESS);
      const bool waits = words[4095] == value;
      // Where it is in host memory, a thread that stands still meanwhile sees the end of the kernels now and then, too. Where
      // four touches have waited, each does.
      if (value < 5) {
        waited += waits ? 1 : 0;
      } else if (waited == 4) {
        EXPECT_TRUE(waits) << value;
      }
    }
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(words[4095], 8u);
  }
  if (waited != 4 && !KernelTellsOfPageFaults()) {
    GTEST_SKIP() << "the kernel tells this process of no page faults, so nothing migrates";
  }
  char name[256] = "";
  ASSERT_EQ(Cu().cuDeviceGetName(name, sizeof(name), device_), CUDA_SUCCESS);
  if (waited != 4 && std::strstr(name, "softgpu") == nullptr) {
    GTEST_SKIP()
        << "it did not migrate: the driver gave none of the addresses, or others hold its memory";
  }
  EXPECT_EQ(waited, 4);
}

TEST_P(ManagedMemory, HoldsTheParametersOfAKernel) {
  struct Parameters {
    CUdeviceptr address;
    uint32_t value, count;
  };
  const CUdeviceptr memory = Managed(4096);
  const CUdeviceptr target = Managed(4096);
  auto* given = reinterpret_cast<Parameters*>(memory);
  for (uint32_t value = 1; value < 4; ++value) {
    *given = {target, value, 1024};
    // So that they are the device's when the launch reads them.
    ASSERT_EQ(Cu().cuMemsetD32_v2(memory + 64, 0, 16), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    void* parameters[] = {&given->address, &given->value, &given->count};
    ASSERT_EQ(
        Cu().cuLaunchKernel(Function("fill"), 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
        CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(reinterpret_cast<const uint32_t*>(target)[1023], value);
  }
}

TEST_P(ManagedMemory, IsForFunctionsThatAStreamWaitsFor) {
  const CUdeviceptr address = Managed(kMiB);
  auto* words = reinterpret_cast<uint32_t*>(address);
  const CUstream stream = Stream();
  const auto increment = [](void* data) { ++*static_cast<uint32_t*>(data); };
  words[0] = 5;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Launch(Function("increment"), 1, 1, stream, address), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuLaunchHostFunc(stream, increment, words), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 11u);
}

TEST_P(ManagedMemory, IsCopiedAndFilledByGraphs) {
  const CUdeviceptr managed = Managed(kMiB);
  const CUdeviceptr plain = Alloc(kMiB);
  auto* words = reinterpret_cast<uint32_t*>(managed);
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(plain, managed, kMiB, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(managed, 3, 16, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("increment"), 1, 1, stream, managed), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (uint32_t value = 10; value < 13; ++value) {
    std::fill_n(words, kMiB / 4, value);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(words[0], 4u);
    EXPECT_EQ(words[15], 3u);
    EXPECT_EQ(words[16], value);
    EXPECT_EQ(Download<uint32_t>(plain, kMiB / 4), std::vector<uint32_t>(kMiB / 4, value));
    // Behind this the device finds it elsewhere.
    if (value == 11) {
      ASSERT_EQ(Cu().cuLaunchHostFunc(
                    stream, [](void*) {}, nullptr),
                CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

// Memory of one stream: others' kernels do not keep the program from it.
TEST_P(ManagedMemory, OfOneStreamIsTheProgramsWhileOthersWork) {
  const CUdeviceptr address = Managed(kMiB, CU_MEM_ATTACH_HOST);
  auto* words = reinterpret_cast<uint32_t*>(address);
  words[1] = 4;
  const CUstream own = Stream();
  const CUstream other = Stream();
  ASSERT_EQ(Cu().cuStreamAttachMemAsync(own, address, 0, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
  // Loads what the driver could not load beside a kernel that runs.
  ASSERT_EQ(Launch(Function("increment"), 1, 1, own, address), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
  Block(other);
  ASSERT_EQ(Launch(Function("increment"), 1, 1, own, address + 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
  EXPECT_EQ(words[1], 5u);
  words[1] = 8;
  ASSERT_EQ(Launch(Function("increment"), 1, 1, own, address + 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
  EXPECT_EQ(words[1], 9u);
  Open();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Small, ManagedMemory, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Large, ManagedMemory, ::testing::Values(4 * kMiB));

}  // namespace
}  // namespace gpuloom::conformance
