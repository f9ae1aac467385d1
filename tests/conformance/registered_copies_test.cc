// SPDX-License-Identifier: Apache-2.0
// Copies of registered memory of every kind: they do not wait, come in their stream's order, and bring
// the right bytes, whatever threads, forks and other mappings do meanwhile.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kSize = size_t{5} << 20;

// Anonymous memory; shared memory of a descriptor of the program's; a file's pages, written through
// or copied on write.
enum class Kind { kPrivate, kShared, kFile, kPrivateFile };

std::string NameOf(const testing::TestParamInfo<Kind>& info) {
  constexpr const char* kNames[] = {"Private", "Shared", "File", "PrivateFile"};
  return kNames[static_cast<size_t>(info.param)];
}

// A file with pages of its own, and no name.
int OpenFile(Kind kind) {
  if (kind == Kind::kShared) return memfd_create("registered", MFD_CLOEXEC);
  char name[] = "/tmp/gpuloom-registered-XXXXXX";
  const int file = mkostemp(name, O_CLOEXEC);
  if (file >= 0) unlink(name);
  return file;
}

class RegisteredCopies : public WithKernels, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int file = -1;
    if (GetParam() != Kind::kPrivate) {
      flags = GetParam() == Kind::kPrivateFile ? MAP_PRIVATE : MAP_SHARED;
      file = OpenFile(GetParam());
      ASSERT_GE(file, 0);
      ASSERT_EQ(ftruncate(file, kSize), 0);
    }
    void* pages = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, flags, file, 0);
    if (file >= 0) close(file);
    ASSERT_NE(pages, MAP_FAILED);
    pages_ = static_cast<uint8_t*>(pages);
    std::memset(pages_, 1, kSize);
  }
  void TearDown() override {
    WithKernels::TearDown();
    munmap(pages_, kSize);
  }
  void Register(size_t begin, size_t size) {
    ASSERT_EQ(Cu().cuMemHostRegister_v2(pages_ + begin, size, 0), CUDA_SUCCESS);
  }
  void Unregister(size_t begin) {
    EXPECT_EQ(Cu().cuMemHostUnregister(pages_ + begin), CUDA_SUCCESS);
  }
  // Registers it beside another. NVIDIA says nothing about ranges that share a page.
  bool MayShareAPage(size_t first, size_t begin, size_t size) {
    const CUresult result = Cu().cuMemHostRegister_v2(pages_ + begin, size, 0);
    if (result == CUDA_SUCCESS) return true;
    EXPECT_EQ(result, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    Unregister(first);
    return false;
  }
  CUdeviceptr Upload(const std::vector<uint32_t>& words) {
    const CUdeviceptr memory = Alloc(words.size() * 4);
    EXPECT_EQ(Cu().cuMemcpyHtoD_v2(memory, words.data(), words.size() * 4), CUDA_SUCCESS);
    return memory;
  }
  uint8_t* pages_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Memory, RegisteredCopies,
                         testing::Values(Kind::kPrivate, Kind::kShared, Kind::kFile,
                                         Kind::kPrivateFile),
                         NameOf);

TEST_P(RegisteredCopies, DoNotWait) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  const CUdeviceptr memory = Alloc(kSize);
  const CUstream stream = Stream();
  const auto words = Pattern(kSize / 4, 3);
  const CUdeviceptr other = Upload(words);
  Block(stream);
  // Both return while the stream is blocked: nobody could open it otherwise.
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, other, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, pages_, kSize, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(pages_[0], 1);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0);
  EXPECT_EQ(Download<uint32_t>(memory, kSize / 4), words) << "the second saw what the first wrote";
  Unregister(0);
}

// Of every size that is handled in its own way, with ends inside of pages.
TEST_P(RegisteredCopies, OfParts) {
  const size_t begin = 100, size = kSize - 300;
  ASSERT_NO_FATAL_FAILURE(Register(begin, size));
  const CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(kSize);
  uint32_t seed = 0;
  for (const size_t bytes :
       {size_t{1}, size_t{4096}, size_t{65536}, size_t{65537}, size_t{1} << 20, size}) {
    const size_t at = begin + (size - bytes) / 2;
    const auto words = Pattern(bytes / 4 + 1, ++seed);
    std::memcpy(pages_ + at, words.data(), bytes);
    ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, pages_ + at, bytes, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    std::memset(pages_ + at, 0, bytes);
    ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_ + at, memory, bytes, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(pages_ + at, words.data(), bytes), 0) << bytes;
  }
  EXPECT_EQ(pages_[begin - 1], 1);
  EXPECT_EQ(pages_[begin + size], 1);
  Unregister(begin);
}

// Pageable memory behind it, as much as is ever staged at once, in its own stream or in one that waits for it.
TEST_P(RegisteredCopies, DoNotWaitForWhatIsBehindThem) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  const CUstream stream = Stream(), other = Stream();
  const CUevent arrived = Event();
  const auto words = Pattern(kSize / 4, 4);
  const auto behind = Pattern(kSize / 4, 5);
  const CUdeviceptr from = Upload(words);
  const CUdeviceptr to = Alloc(kSize);
  for (const CUstream last : {stream, other}) {
    std::memset(pages_, 1, kSize);
    Block(stream);
    ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, from, kSize, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuEventRecord(arrived, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamWaitEvent(last, arrived, 0), CUDA_SUCCESS);
    // The copy may wait for the device, so another thread lets it go on.
    std::thread opens([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      Open();
    });
    EXPECT_EQ(Cu().cuMemcpyHtoDAsync_v2(to, behind.data(), kSize, last), CUDA_SUCCESS);
    opens.join();
    ASSERT_EQ(Cu().cuStreamSynchronize(last), CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0);
    EXPECT_EQ(Download<uint32_t>(to, kSize / 4), behind);
  }
  Unregister(0);
}

// A small copy from it is behind a large one to it, in another stream that waits for the first.
TEST_P(RegisteredCopies, InTheOrderOfEvents) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  const CUstream first = Stream(), second = Stream();
  const CUevent arrived = Event();
  const auto words = Pattern(kSize / 4, 5);
  const CUdeviceptr from = Upload(words);
  const CUdeviceptr to = Alloc(8192);
  Block(first);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, from, kSize, first), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(arrived, first), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(second, arrived, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(to, pages_ + kSize - 4096, 4096, second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(arrived), CUDA_ERROR_NOT_READY);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(arrived), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(to, 1024), std::vector<uint32_t>(words.end() - 1024, words.end()));
  Unregister(0);
}

TEST_P(RegisteredCopies, OfRows) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  constexpr size_t kRows = 300, kWidth = 1000, kPitch = 1500;
  const CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(kRows * kWidth);
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = pages_ + 77;
  rows.srcPitch = kPitch;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = memory;
  rows.dstPitch = rows.WidthInBytes = kWidth;
  rows.Height = kRows;
  for (size_t i = 0; i < kRows * kPitch; ++i)
    pages_[77 + i] = static_cast<uint8_t>(i * 13 + i / 997);
  Block(stream);
  ASSERT_EQ(Cu().cuMemcpy2DAsync_v2(&rows, stream), CUDA_SUCCESS);
  CUDA_MEMCPY2D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = memory;
  back.srcPitch = back.WidthInBytes = kWidth;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = pages_ + (size_t{2} << 20);
  back.dstPitch = kPitch;
  back.Height = kRows;
  ASSERT_EQ(Cu().cuMemcpy2DAsync_v2(&back, stream), CUDA_SUCCESS);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  const uint8_t* there = pages_ + (size_t{2} << 20);
  for (size_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(std::memcmp(there + row * kPitch, pages_ + 77 + row * kPitch, kWidth), 0) << row;
    ASSERT_EQ(there[row * kPitch + kWidth], 1) << row;
  }
  Unregister(0);
}

TEST_P(RegisteredCopies, HaveArrivedWhenItIsUnregistered) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  const CUstream stream = Stream();
  const auto words = Pattern(kSize / 4, 6);
  const CUdeviceptr from = Upload(words);
  const CUdeviceptr to = Alloc(kSize);
  Block(stream);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, from, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(to, pages_, kSize, stream), CUDA_SUCCESS);
  Open();
  Unregister(0);
  EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0);
  std::memset(pages_, 0, kSize);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(to, kSize / 4), words);
}

TEST_P(RegisteredCopies, RunWhenAGraphDoes) {
  ASSERT_NO_FATAL_FAILURE(Register(0, kSize));
  const CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(kSize);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, pages_, 8192, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_ + 8192, memory, 8192, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (const uint8_t value : {7, 9}) {
    std::memset(pages_, value, 8192);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(pages_[8192], value);
    EXPECT_EQ(pages_[16383], value);
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  Unregister(0);
}

// Their writes wait where they must, and none is lost: neither in the range nor beside it.
TEST_P(RegisteredCopies, OtherThreadsMayWriteWhileItIsRegistered) {
  constexpr size_t kBegin = 4096 + 64, kBytes = kSize - 8192;
  constexpr int kThreads = 3;
  std::memset(pages_, 0, kSize);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<uint32_t> rounds(kThreads, 0);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      // A word in each page for each thread, from before the range to behind it.
      for (; !stop; ++rounds[i]) {
        for (size_t at = 32 + 4 * i; at < kSize; at += 4096) {
          auto* word = reinterpret_cast<volatile uint32_t*>(pages_ + at);
          *word = *word + 1;
        }
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    ASSERT_NO_FATAL_FAILURE(Register(kBegin, kBytes));
    Unregister(kBegin);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    for (size_t at = 32 + 4 * i; at < kSize; at += 4096) {
      uint32_t word;
      std::memcpy(&word, pages_ + at, sizeof(word));
      ASSERT_EQ(word, rounds[i]) << "thread " << i << ", byte " << at;
    }
  }
}

TEST_P(RegisteredCopies, OfRangesThatShareAPage) {
  constexpr size_t kBegins[] = {100, 1'100'000, 2'200'040, 2'200'080, 3'300'000};
  const CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(kSize);
  const auto words = Pattern(kSize / 4, 9);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  const auto size_of = [&](size_t i) { return kBegins[i + 1] - kBegins[i]; };
  ASSERT_NO_FATAL_FAILURE(Register(kBegins[0], size_of(0)));
  if (!MayShareAPage(kBegins[0], kBegins[1], size_of(1)))
    GTEST_SKIP() << "here a page is registered once";
  for (size_t i = 2; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(Register(kBegins[i], size_of(i)));
  // From the last, so that the first goes when nothing else holds their common page, and again the other way round.
  for (const bool forward : {false, true}) {
    for (size_t gone = 0; gone < 4; ++gone) {
      std::memcpy(pages_ + kBegins[0], bytes, kBegins[4] - kBegins[0]);
      for (size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(
            Cu().cuMemcpyHtoDAsync_v2(memory + kBegins[i], pages_ + kBegins[i], size_of(i), stream),
            CUDA_SUCCESS);
      }
      ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
      std::memset(pages_ + kBegins[0], 0, kBegins[4] - kBegins[0]);
      for (size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(
            Cu().cuMemcpyDtoHAsync_v2(pages_ + kBegins[i], memory + kBegins[i], size_of(i), stream),
            CUDA_SUCCESS);
      }
      ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
      EXPECT_EQ(std::memcmp(pages_ + kBegins[0], bytes, kBegins[4] - kBegins[0]), 0)
          << forward << gone;
      Unregister(kBegins[forward ? gone : 3 - gone]);
    }
    if (forward) break;
    for (size_t i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(Register(kBegins[i], size_of(i)));
  }
  EXPECT_EQ(pages_[kBegins[0] - 1], 1);
  EXPECT_EQ(pages_[kBegins[4]], 1);
}

// Copies of one range go on while its neighbour comes and goes.
TEST_P(RegisteredCopies, WhileANeighbourComesAndGoes) {
  constexpr size_t kBorder = (size_t{2} << 20) + 60;
  ASSERT_NO_FATAL_FAILURE(Register(0, kBorder));
  if (!MayShareAPage(0, kBorder, kSize - kBorder)) GTEST_SKIP() << "here a page is registered once";
  std::atomic<bool> stop{false};
  std::thread neighbour([&] {
    ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    for (; !stop;) {
      Unregister(0);
      ASSERT_NO_FATAL_FAILURE(Register(0, kBorder));
    }
  });
  const CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(kSize - kBorder);
  for (uint32_t round = 0; round < 30; ++round) {
    const auto words = Pattern((kSize - kBorder) / 4, round);
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(memory, words.data(), words.size() * 4), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_ + kBorder, memory, words.size() * 4, stream),
              CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(std::memcmp(pages_ + kBorder, words.data(), words.size() * 4), 0) << round;
  }
  stop = true;
  neighbour.join();
  Unregister(0);
  Unregister(kBorder);
}

// malloc's own notes share pages with what it gives out.
TEST_F(WithKernels, RegisteredPiecesOfTheHeap) {
  std::vector<char*> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(static_cast<char*>(std::malloc(50'000)));
    std::memset(all.back(), i, 50'000);
  }
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      void* some[50];
      for (int i = 0; i < 50; ++i) some[i] = std::malloc(100 + 300 * i);
      for (void* it : some) std::free(it);
    }
  });
  const CUdeviceptr memory = Alloc(50'000);
  for (int i = 1; i < 39; i += 2) {
    ASSERT_EQ(Cu().cuMemHostRegister_v2(all[i], 50'000, 0), CUDA_SUCCESS) << i;
  }
  for (int i = 1; i < 39; i += 2) {
    ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, all[i], 50'000, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint8_t>(memory, 50'000), std::vector<uint8_t>(50'000, i));
  }
  for (int i = 1; i < 39; i += 2) {
    ASSERT_EQ(Cu().cuMemHostUnregister(all[i]), CUDA_SUCCESS) << i;
  }
  stop = true;
  other.join();
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(std::vector<char>(all[i], all[i] + 50'000), std::vector<char>(50'000, i)) << i;
    std::free(all[i]);
  }
}

// Something else lies where registered memory was: a child of fork finds that, and unregistering leaves it.
TEST_F(WithKernels, RegisteredMemoryThatWasUnmapped) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  void* mapped = mmap(nullptr, kSize, kProtection, kAnonymous, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* pages = static_cast<uint8_t*>(mapped);
  std::memset(pages, 1, kSize);
  ASSERT_EQ(Cu().cuMemHostRegister_v2(pages, kSize, 0), CUDA_SUCCESS);
  const size_t hole = size_t{1} << 20;
  ASSERT_EQ(munmap(pages + hole, hole), 0);
  ASSERT_EQ(mmap(pages + hole, 4096, kProtection, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            pages + hole);
  const pid_t child = fork();
  if (child == 0) {
    pages[hole] = 42;  // seen by the parent
    const bool own = pages[0] == 1 && pages[kSize - 1] == 1;
    pages[0] = 77;
    _exit(own ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pages[hole], 42);
  EXPECT_EQ(pages[0], 1);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages), CUDA_SUCCESS);
  EXPECT_EQ(pages[hole], 42);
  EXPECT_EQ(pages[kSize - 1], 1);
  munmap(pages, kSize);
}

}  // namespace
}  // namespace gpuloom::conformance
