// SPDX-License-Identifier: Apache-2.0
// Where drivers that answer early are caught: events that other threads recorded, queries that say
// "done", memory that the program uses again at once, and errors that must not stay.
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace gpuloom::conformance {
namespace {

constexpr uint64_t kMomentNs = 20'000'000;

class Ordering : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    word_ = static_cast<volatile uint32_t*>(HostAlloc(sizeof(uint32_t)));
    ASSERT_NE(word_, nullptr);
    store_ = Function("store");
  }
  void Store(CUstream stream, uint32_t value) {
    ASSERT_EQ(Launch(store_, 1, 1, stream, reinterpret_cast<CUdeviceptr>(word_), value),
              CUDA_SUCCESS);
  }
  // Keeps the stream busy for a moment, whatever the host does meanwhile.
  void Spin(CUstream stream) {
    ASSERT_EQ(Launch(Function("spin"), 1, 1, stream, kMomentNs), CUDA_SUCCESS);
  }

  volatile uint32_t* word_ = nullptr;
  CUfunction store_ = nullptr;
};

TEST_F(Ordering, AnEventRecordedInAnotherThread) {
  CUstream before = Stream(), behind = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  Block(before);
  std::thread([&] {
    ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    Store(before, 1);
    ASSERT_EQ(Cu().cuEventRecord(event, before), CUDA_SUCCESS);
  }).join();
  ASSERT_EQ(Cu().cuStreamWaitEvent(behind, event, 0), CUDA_SUCCESS);
  Store(behind, 2);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cu().cuStreamQuery(behind), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(*word_, 0u);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(behind), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 2u);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);
}

// From host memory to host memory asynchronous copies are synchronous, and programs look at once.
TEST_F(Ordering, ACopyFromHostToHostIsDoneWhenTheCallReturns) {
  const CUstream stream = Stream();
  const auto from = reinterpret_cast<CUdeviceptr>(word_);
  auto* pinned = static_cast<volatile uint32_t*>(HostAlloc(4096));
  ASSERT_NE(pinned, nullptr);
  volatile uint32_t pageable = 0;
  uint32_t value = 0;
  for (volatile uint32_t* to : {pinned, static_cast<volatile uint32_t*>(&pageable)}) {
    Spin(stream);
    Store(stream, ++value);
    ASSERT_EQ(Cu().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, sizeof(value), stream),
              CUDA_SUCCESS);
    EXPECT_EQ(*to, value);
  }
  pageable = 77;
  Spin(stream);
  ASSERT_EQ(Cu().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned),
                               reinterpret_cast<CUdeviceptr>(&pageable), sizeof(value), stream),
            CUDA_SUCCESS);
  EXPECT_EQ(*pinned, 77u);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_SUCCESS) << "what came before is done, too";

  // In a blocking stream behind the legacy stream's work, of which that stream knows nothing yet.
  CUstream blocking = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  Spin(nullptr);
  Store(nullptr, ++value);
  ASSERT_EQ(
      Cu().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned), from, sizeof(value), blocking),
      CUDA_SUCCESS);
  EXPECT_EQ(*pinned, value);
  EXPECT_EQ(Cu().cuStreamDestroy_v2(blocking), CUDA_SUCCESS);

  Spin(stream);
  Store(stream, ++value);
  CUDA_MEMCPY3D block = {};
  block.srcMemoryType = block.dstMemoryType = CU_MEMORYTYPE_HOST;
  block.srcHost = const_cast<uint32_t*>(word_);
  block.dstHost = const_cast<uint32_t*>(pinned + 8);
  block.WidthInBytes = sizeof(value);
  block.Height = block.Depth = 1;
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&block, stream), CUDA_SUCCESS);
  EXPECT_EQ(pinned[8], value);
}

// When a query says "done", what stands before the event can be seen, in every thread.
TEST_F(Ordering, AQueryNeverLies) {
  CUstream stream = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  std::atomic<uint32_t> recorded{0}, lies{0};
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    while (!stop) {
      const uint32_t before = recorded;
      if (before != 0 && Cu().cuEventQuery(event) == CUDA_SUCCESS && *word_ < before) ++lies;
    }
  });
  for (uint32_t i = 1; i <= 300; ++i) {
    Store(stream, i);
    ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
    recorded = i;
    CUresult result;
    while ((result = i % 2 == 0 ? Cu().cuEventQuery(event) : Cu().cuStreamQuery(stream)) ==
           CUDA_ERROR_NOT_READY) {
    }
    ASSERT_EQ(result, CUDA_SUCCESS);
    ASSERT_EQ(*word_, i);
  }
  stop = true;
  watcher.join();
  EXPECT_EQ(lies, 0u);
}

// Behind a busy stream, too, pageable memory is the program's again when the call returns.
TEST_F(Ordering, PageableMemoryIsOverwrittenAtOnce) {
  CUstream stream = Stream();
  for (const size_t words : {size_t{1}, size_t{1} << 10, size_t{1} << 14, size_t{1} << 20}) {
    const CUdeviceptr memory = Alloc(words * sizeof(uint32_t));
    std::vector<uint32_t> source = Pattern(words, 7);
    const std::vector<uint32_t> expected = source;
    Spin(stream);
    ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, source.data(), words * sizeof(uint32_t), stream),
              CUDA_SUCCESS);
    std::memset(source.data(), 0xee, words * sizeof(uint32_t));
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(memory, words), expected) << words;
  }
}

// Images may lie in memory that is gone when the first kernel is asked for.
TEST_F(Ordering, ImagesOnTransientMemory) {
  const size_t bytes = (sizeof(kKernels) + 4095) / 4096 * 4096;
  for (const bool as_library : {false, true}) {
    void* image = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(image, MAP_FAILED);
    std::memcpy(image, kKernels, sizeof(kKernels));
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    CUfunction store = nullptr;
    CUkernel kernel = nullptr;
    if (as_library) {
      ASSERT_EQ(Cu().cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
                CUDA_SUCCESS);
    } else {
      ASSERT_EQ(Cu().cuModuleLoadData(&module, image), CUDA_SUCCESS);
    }
    munmap(image, bytes);
    if (as_library) {
      ASSERT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "store"), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuKernelGetFunction(&store, kernel), CUDA_SUCCESS);
    } else {
      ASSERT_EQ(Cu().cuModuleGetFunction(&store, module, "store"), CUDA_SUCCESS);
    }
    const uint32_t value = as_library ? 22 : 11;
    ASSERT_EQ(Launch(store, 1, 1, nullptr, reinterpret_cast<CUdeviceptr>(word_), value),
              CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(*word_, value);
    EXPECT_EQ(as_library ? Cu().cuLibraryUnload(library) : Cu().cuModuleUnload(module),
              CUDA_SUCCESS);
  }
}

// Freeing waits for the work that was there before.
TEST_F(Ordering, MemoryIsFreedWhileInUse) {
  CUstream stream = Stream();
  CUdeviceptr memory = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&memory, size_t{4} << 20), CUDA_SUCCESS);
  Spin(stream);
  ASSERT_EQ(Launch(Function("fill"), 4096, 256, stream, memory, 7u, 1u << 20), CUDA_SUCCESS);
  Store(stream, 5);
  ASSERT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 5u);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_SUCCESS);
}

// What a finished stream has waited for is finished, for whoever asks.
TEST_F(Ordering, AnEventIsReadyWhenWhatWaitedForItIsDone) {
  CUstream first = Stream(CU_STREAM_NON_BLOCKING), second = Stream(CU_STREAM_NON_BLOCKING);
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  const CUdeviceptr memory = Alloc(8192);
  for (uint32_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(Cu().cuMemsetD32Async(memory, i, 1000, first), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuEventRecord(event, first), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD32Async(memory + 4096, i, 10, second), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS) << "in round " << i;
    ASSERT_EQ(Cu().cuStreamQuery(first), CUDA_SUCCESS) << "in round " << i;
  }
}

// A refused call leaves nothing behind.
TEST_F(Ordering, RefusalsDoNotStay) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
  CUmodule module = nullptr;
  EXPECT_EQ(Cu().cuModuleLoadData(&module, "no image at all"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Launch(store_, 1, 4096, nullptr, reinterpret_cast<CUdeviceptr>(word_), 1u),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  Store(nullptr, 3);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 3u);
}

// Without a profiler there is nothing to start, and programs that do so run on.
TEST_F(Ordering, AProfilerThatIsNotThereMayBeStarted) {
  EXPECT_EQ(Cu().cuProfilerStart(), CUDA_SUCCESS);
  Store(nullptr, 9);
  EXPECT_EQ(Cu().cuProfilerStop(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 9u);
}

}  // namespace
}  // namespace gpuloom::conformance
