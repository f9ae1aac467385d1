// SPDX-License-Identifier: Apache-2.0
// Memory pools that processes share by a descriptor: the children's halves are in
// shared_pool_children.cc.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/conformance/children.h"
#include "tests/conformance/descriptor_socket.h"
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr int kKilled = 128 + SIGKILL;

void* AsHandle(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

class SharedPools : public WithContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
    stream_ = Stream();
  }
  CUmemoryPool MakePool(CUmemAllocationHandleType types = kDescriptor) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = types;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(Cu().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  // 0x21 all over.
  CUdeviceptr Take(CUmemoryPool pool, size_t size) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(Cu().cuMemAllocFromPoolAsync(&memory, size, pool, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemsetD8Async(memory, 0x21, size, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return memory;
  }
  void Give(CUdeviceptr memory) {
    EXPECT_EQ(Cu().cuMemFreeAsync(memory, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  int Export(CUmemoryPool pool) {
    int fd = -1;
    EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0), CUDA_SUCCESS);
    EXPECT_GE(fd, 0);
    return fd;
  }
  CUmemPoolPtrExportData Export(CUdeviceptr memory) {
    CUmemPoolPtrExportData data = {};
    EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, memory), CUDA_SUCCESS);
    return data;
  }
  // What an allocation in it is exported for; nobody needs the descriptor.
  void ExportOnly(CUmemoryPool pool) { close(Export(pool)); }
  // For a child to inherit; the caller's.
  int PassPool(CUmemoryPool pool) {
    const int exported = Export(pool);
    const int inherited = fcntl(exported, F_DUPFD, 3);  // without close-on-exec
    close(exported);
    PassToChild("GPULOOM_TEST_DESCRIPTOR", inherited);
    return inherited;
  }
  // The first end is ours, the second a child's, who finds it.
  static void Connect(int* ends) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const timeval patience = {60, 0};
    ASSERT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    PassToChild("GPULOOM_TEST_SOCKET", ends[1]);
  }
  // Once the driver has what it needs for such work itself.
  size_t FreeBefore() {
    CUmemoryPool pool = MakePool();
    ExportOnly(pool);
    Give(Take(pool, kMiB));
    EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    return FreeBytes() - 4 * kMiB;
  }
  // What a process had that was killed comes back when its end has been seen. If more is missing than
  // these tests ever had, other processes have it, and nothing can be said.
  void ExpectFreeAgain(size_t wanted) {
    constexpr size_t kOursAtMost = 2048 * kMiB;
    size_t free = FreeBytes();
    const int looks = CountsOthers() ? 100 : 1000;
    for (int i = 0; i < looks && free < wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      free = std::max(free, FreeBytes());
    }
    if (CountsOthers() && free + kOursAtMost < wanted) GTEST_SKIP() << "others have the memory";
    EXPECT_GE(free, wanted);
  }

  CUstream stream_ = nullptr;
};

TEST_F(SharedPools, AreSupported) {
  int types = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                                      device_),
            CUDA_SUCCESS);
  EXPECT_NE(types & kDescriptor, 0);
}

TEST_F(SharedPools, AnotherProcessUsesAllocations) {
  CUmemoryPool pool = MakePool();
  CUmemoryPool strange = MakePool();
  ASSERT_NE(pool, nullptr);
  const CUdeviceptr strange_memory = Take(strange, 4096);
  ExportOnly(strange);
  PassToChild("GPULOOM_TEST_STRANGE_POINTER", Export(strange_memory));
  for (const size_t size : {size_t{4096}, 3 * kMiB, 40 * kMiB}) {
    const CUdeviceptr first = Take(pool, size);
    const CUdeviceptr second = Take(pool, size);
    const int inherited = PassPool(pool);
    PassToChild("GPULOOM_TEST_POINTER", Export(first));
    PassToChild("GPULOOM_TEST_SECOND_POINTER", Export(second));
    PassToChild("GPULOOM_TEST_SIZE", size);
    EXPECT_EQ(RunChild("imports_pool"), 0);
    close(inherited);
    for (const CUdeviceptr memory : {first, second}) {
      EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x42));
      Give(memory);
    }
  }
  Give(strange_memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(strange), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(SharedPools, ADestroyedPoolServesWhileItHasAllocations) {
  const size_t size = 3 * kMiB;
  CUmemoryPool pool = MakePool();
  CUmemoryPool strange = MakePool();
  const CUdeviceptr strange_memory = Take(strange, 4096);
  ExportOnly(strange);
  PassToChild("GPULOOM_TEST_STRANGE_POINTER", Export(strange_memory));
  const CUdeviceptr first = Take(pool, size);
  const CUdeviceptr second = Take(pool, size);
  const int inherited = PassPool(pool);
  PassToChild("GPULOOM_TEST_POINTER", Export(first));
  PassToChild("GPULOOM_TEST_SECOND_POINTER", Export(second));
  PassToChild("GPULOOM_TEST_SIZE", size);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(RunChild("imports_pool"), 0);
  close(inherited);
  EXPECT_EQ(Download<uint8_t>(second, size), std::vector<uint8_t>(size, 0x42));
  for (const CUdeviceptr memory : {first, second, strange_memory}) Give(memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(strange), CUDA_SUCCESS);
}

// Also if the program has synchronised meanwhile, and whoever imports it has never come.
TEST_F(SharedPools, ADestroyedPoolsExportedMemoryComesBackWithItsLastAllocation) {
  const size_t before = FreeBefore();
  CUmemoryPool pool = MakePool();
  const CUdeviceptr memory = Take(pool, 20 * kMiB);
  ExportOnly(pool);
  (void)Export(memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  Give(memory);
  ExpectFreeAgain(before);
}

TEST_F(SharedPools, AnImporterThatIsKilledTakesNothingAlong) {
  const size_t size = 20 * kMiB;
  const size_t before = FreeBefore();
  CUmemoryPool pool = MakePool();
  const CUdeviceptr memory = Take(pool, size);
  const int inherited = PassPool(pool);
  PassToChild("GPULOOM_TEST_POINTER", Export(memory));
  PassToChild("GPULOOM_TEST_SIZE", size);
  EXPECT_EQ(RunChild("imports_pool_and_dies"), kKilled);
  close(inherited);
  EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x42));
  EXPECT_EQ(Cu().cuMemsetD8Async(memory, 0x63, size, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x63));
  Give(memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  ExpectFreeAgain(before);
}

TEST_F(SharedPools, AnExporterThatIsKilledLeavesWhatIsImported) {
  const size_t size = 20 * kMiB;
  const size_t before = FreeBefore();
  int ends[2];
  ASSERT_NO_FATAL_FAILURE(Connect(ends));
  PassToChild("GPULOOM_TEST_SIZE", size);
  int status = -1;
  std::thread child([&] {
    status = RunChild("exports_pool_and_dies");
    close(ends[1]);  // nothing comes any more
  });
  CUmemPoolPtrExportData data = {};
  const int fd = ReceiveDescriptor(ends[0], &data);
  EXPECT_GE(fd, 0);
  CUmemoryPool pool = nullptr;
  CUdeviceptr memory = 0;
  EXPECT_EQ(Cu().cuMemPoolImportFromShareableHandle(&pool, AsHandle(fd), kDescriptor, 0),
            CUDA_SUCCESS);
  close(fd);
  EXPECT_EQ(Cu().cuMemPoolImportPointer(&memory, pool, &data), CUDA_SUCCESS);
  EXPECT_EQ(write(ends[0], "x", 1), 1);
  child.join();
  close(ends[0]);
  EXPECT_EQ(status, kKilled);
  ASSERT_NE(memory, 0u);
  EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x21));
  EXPECT_EQ(Cu().cuMemsetD8Async(memory, 0x63, size, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x63));
  EXPECT_EQ(Cu().cuMemFreeAsync(memory, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  ExpectFreeAgain(before);
}

// "The cuMemFreeAsync api may be used in the exporting process before the cuMemFreeAsync operation
// completes" in the importing one, behind an event of its stream.
TEST_F(SharedPools, FreesInTheOrderOfAnEventOfBothProcesses) {
  const size_t size = 8 * kMiB;
  CUipcEventHandle event_handle;
  if (Cu().cuIpcGetEventHandle(&event_handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED) {
    GTEST_SKIP() << "this driver shares no events";
  }
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  ASSERT_EQ(Cu().cuIpcGetEventHandle(&event_handle, event), CUDA_SUCCESS);
  CUmemoryPool pool = MakePool();
  CUdeviceptr memory = Take(pool, size);
  const int inherited = PassPool(pool);
  int ends[2];
  ASSERT_NO_FATAL_FAILURE(Connect(ends));
  PassToChild("GPULOOM_TEST_POINTER", Export(memory));
  PassToChild("GPULOOM_TEST_SIZE", size);
  PassToChild("GPULOOM_TEST_EVENT", event_handle);
  int status = -1;
  std::thread child([&] {
    status = RunChild("frees_behind_a_gate");
    close(ends[1]);
  });
  char ready = 0;
  EXPECT_EQ(read(ends[0], &ready, 1), 1);
  EXPECT_EQ(Cu().cuStreamWaitEvent(stream_, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(memory, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemAllocFromPoolAsync(&memory, size, pool, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD8Async(memory, 0x77, size, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(write(ends[0], "x", 1), 1);
  child.join();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x77));
  Give(memory);
  close(inherited);
  close(ends[0]);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

// Freed memory of a pool that was exported is used again, and goes with the pool.
TEST_F(SharedPools, AnExportedPoolIsAPoolLikeOthers) {
  const size_t before = FreeBefore();
  CUmemoryPool pool = MakePool();
  ExportOnly(pool);
  for (int i = 0; i < 50; ++i) {
    const CUdeviceptr memory = Take(pool, 30 * kMiB);
    (void)Export(memory);
    EXPECT_EQ(Download<uint8_t>(memory + 30 * kMiB - 1, 1)[0], 0x21);
    Give(memory);
  }
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  ExpectFreeAgain(before);
}

TEST_F(SharedPools, WrongExports) {
  CUmemoryPool pool = MakePool();
  CUmemoryPool own = MakePool(CU_MEM_HANDLE_TYPE_NONE);
  CUmemoryPool standard = nullptr;
  ASSERT_EQ(Cu().cuDeviceGetDefaultMemPool(&standard, device_), CUDA_SUCCESS);
  int fd = -1;
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(nullptr, pool, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, nullptr, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_NONE, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, own, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, standard, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  CUmemPoolPtrExportData data = {};
  int local = 0;
  const CUdeviceptr memory = Take(pool, 4096);
  const CUdeviceptr own_memory = Take(own, 4096);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, memory), CUDA_ERROR_INVALID_VALUE)
      << "before its pool";
  ExportOnly(pool);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, memory), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, Alloc(4096)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolExportPointer(&data, own_memory), CUDA_ERROR_INVALID_VALUE);
  Give(memory);
  Give(own_memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolDestroy(own), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharedPools, WrongImports) {
  CUmemoryPool pool = MakePool();
  const CUdeviceptr memory = Take(pool, 4096);
  const int fd = Export(pool);
  CUmemPoolPtrExportData data = Export(memory);
  CUmemoryPool imported = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(Cu().cuMemPoolImportFromShareableHandle(nullptr, AsHandle(fd), kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolImportFromShareableHandle(&imported, AsHandle(fd), kDescriptor, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      Cu().cuMemPoolImportFromShareableHandle(&imported, AsHandle(fd), CU_MEM_HANDLE_TYPE_NONE, 0),
      CUDA_ERROR_INVALID_VALUE);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int wrong_fd : {-1, null}) {
    EXPECT_EQ(
        Cu().cuMemPoolImportFromShareableHandle(&imported, AsHandle(wrong_fd), kDescriptor, 0),
        CUDA_ERROR_UNKNOWN);
  }
  // A pool's descriptor is none of memory.
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cu().cuMemImportFromShareableHandle(&handle, AsHandle(fd), kDescriptor),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuMemPoolImportPointer(&address, nullptr, &data), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(Cu().cuMemPoolImportPointer(&address, pool, &data), CUDA_SUCCESS)
      << "the pool is no imported one";
  close(null);
  close(fd);
  Give(memory);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
