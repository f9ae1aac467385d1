// SPDX-License-Identifier: Apache-2.0
// The other processes of shared_pool_test.cc.
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "tests/conformance/children.h"
#include "tests/conformance/descriptor_socket.h"

namespace gpuloom::conformance {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void Hold(bool condition, const char* what) {
  if (condition) return;
  ++wrong;
  std::printf("%s\n", what);
}

CUmemoryPool Import() {
  const auto fd = FromParent<int>("GPULOOM_TEST_DESCRIPTOR");
  CUmemoryPool pool = nullptr;
  Want(Cu().cuMemPoolImportFromShareableHandle(
           &pool, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor, 0),
       CUDA_SUCCESS, "import of the pool");
  return pool;
}

CUdeviceptr Import(CUmemoryPool pool, const char* name) {
  auto data = FromParent<CUmemPoolPtrExportData>(name);
  CUdeviceptr memory = 0;
  Want(Cu().cuMemPoolImportPointer(&memory, pool, &data), CUDA_SUCCESS, name);
  return memory;
}

// What may not be done with a pool that was imported.
void TryWhatIsNotAllowed(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr address = 0;
  Hold(Cu().cuMemAllocFromPoolAsync(&address, 4096, pool, stream) != CUDA_SUCCESS,
       "an imported pool gave memory");
  Hold(Cu().cuDeviceSetMemPool(device, pool) != CUDA_SUCCESS, "an imported pool became current");
  uint64_t number = 0;
  for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
       ++i) {
    const auto attribute = static_cast<CUmemPool_attribute>(i);
    Want(Cu().cuMemPoolGetAttribute(pool, attribute, &number), CUDA_ERROR_INVALID_VALUE,
         "cuMemPoolGetAttribute");
    Want(Cu().cuMemPoolSetAttribute(pool, attribute, &number), CUDA_ERROR_INVALID_VALUE,
         "cuMemPoolSetAttribute");
  }
  Want(Cu().cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE, "cuMemPoolTrimTo");
  Want(Cu().cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE, "cuMemPoolDestroy in use");
  CUmemPoolPtrExportData none = {};
  Hold(Cu().cuMemPoolImportPointer(&address, pool, &none) != CUDA_SUCCESS,
       "nothing was imported as a pointer");
  Want(Cu().cuMemPoolImportPointer(&address, pool, nullptr), CUDA_ERROR_INVALID_VALUE, "no data");
  auto data = FromParent<CUmemPoolPtrExportData>("GPULOOM_TEST_POINTER");
  Want(Cu().cuMemPoolImportPointer(nullptr, pool, &data), CUDA_ERROR_INVALID_VALUE, "no result");
  auto strange = FromParent<CUmemPoolPtrExportData>("GPULOOM_TEST_STRANGE_POINTER");
  Want(Cu().cuMemPoolImportPointer(&address, pool, &strange), CUDA_ERROR_INVALID_VALUE,
       "another pool's pointer");
}

}  // namespace

int ImportsPool() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  CUstream stream = nullptr;
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  CUmemoryPool pool = Import();
  if (wrong != 0) return wrong;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  Want(Cu().cuMemPoolGetAccess(&flags, pool, &location), CUDA_SUCCESS, "cuMemPoolGetAccess");
  Hold(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the pool's own device does not reach it");

  const CUdeviceptr first = Import(pool, "GPULOOM_TEST_POINTER");
  const CUdeviceptr second = Import(pool, "GPULOOM_TEST_SECOND_POINTER");
  if (wrong != 0) return wrong;
  Hold(first + size <= second || second + size <= first, "the allocations overlap");
  CUmemoryPool of = nullptr;
  Want(Cu().cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first), CUDA_SUCCESS,
       "cuPointerGetAttribute");
  Hold(of == pool, "the pointer is of another pool");
  size_t range = 0;
  Want(Cu().cuMemGetAddressRange_v2(nullptr, &range, first + size / 2), CUDA_SUCCESS,
       "cuMemGetAddressRange");
  Hold(range >= size, "the allocation is smaller than it was");
  TryWhatIsNotAllowed(pool, stream);
  // Imported again they are the same; what was allocated is freed once.
  Hold(Import() == pool, "another pool was imported");
  Hold(Import(pool, "GPULOOM_TEST_POINTER") == first, "the pointer was imported elsewhere");

  ReadAndWrite(first, size, stream);
  ReadAndWrite(second, size, stream);
  Want(Cu().cuMemFreeAsync(first, stream), CUDA_SUCCESS, "cuMemFreeAsync");
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  Want(Cu().cuMemFreeAsync(first, stream), CUDA_ERROR_INVALID_VALUE,
       "cuMemFreeAsync a second time");
  // It may come again.
  const CUdeviceptr again = Import(pool, "GPULOOM_TEST_POINTER");
  if (wrong != 0) return wrong;
  std::vector<uint8_t> seen(size);
  Want(Cu().cuMemcpyDtoHAsync_v2(seen.data(), again, size, stream), CUDA_SUCCESS, "copy");
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  Hold(seen == std::vector<uint8_t>(size, 0x42), "imported again it is another memory");
  Want(Cu().cuMemFree_v2(second), CUDA_SUCCESS, "cuMemFree");
  Want(Cu().cuMemFreeAsync(again, stream), CUDA_SUCCESS, "cuMemFreeAsync again");
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  for (int i = 0; i < 2; ++i) {  // as often as it was imported
    Want(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS, "cuMemPoolDestroy");
  }
  return wrong;
}

int ImportsPoolAndDies() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  const CUdeviceptr memory = Import(Import(), "GPULOOM_TEST_POINTER");
  ReadAndWrite(memory, size, nullptr);
  Want(Cu().cuCtxSynchronize(), CUDA_SUCCESS, "cuCtxSynchronize");
  if (wrong == 0) raise(SIGKILL);
  return wrong;
}

// Its use of the memory, and its freeing, wait until the other process has freed and used it again
// behind the event.
int FreesBehindAGate() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  const auto socket = FromParent<int>("GPULOOM_TEST_SOCKET");
  const CUdeviceptr memory = Import(Import(), "GPULOOM_TEST_POINTER");
  CUstream stream = nullptr;
  CUevent event = nullptr;
  void* pinned = nullptr;
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  Want(Cu().cuIpcOpenEventHandle(&event, FromParent<CUipcEventHandle>("GPULOOM_TEST_EVENT")),
       CUDA_SUCCESS, "cuIpcOpenEventHandle");
  Want(Cu().cuMemHostAlloc(&pinned, size + 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS,
       "cuMemHostAlloc");
  if (wrong != 0) return wrong;
  auto* bytes = static_cast<uint8_t*>(pinned);
  volatile auto* gate = reinterpret_cast<volatile uint32_t*>(bytes + size);
  *gate = 0;
  Want(Cu().cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(bytes + size), 1,
                                   CU_STREAM_WAIT_VALUE_EQ),
       CUDA_SUCCESS, "cuStreamWaitValue32");
  Want(Cu().cuMemcpyDtoHAsync_v2(bytes, memory, size, stream), CUDA_SUCCESS, "copy");
  Want(Cu().cuMemFreeAsync(memory, stream), CUDA_SUCCESS, "cuMemFreeAsync");
  Want(Cu().cuEventRecord(event, stream), CUDA_SUCCESS, "cuEventRecord");
  char go = 0;
  Hold(write(socket, "x", 1) == 1 && read(socket, &go, 1) == 1, "the socket failed");
  *gate = 1;
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  Hold(std::vector<uint8_t>(bytes, bytes + size) == std::vector<uint8_t>(size, 0x21),
       "the memory was used again before it was free");
  return wrong;
}

int ExportsPoolAndDies() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  const auto socket = FromParent<int>("GPULOOM_TEST_SOCKET");
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = kDescriptor;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pool = nullptr;
  CUdeviceptr memory = 0;
  int fd = -1;
  CUmemPoolPtrExportData data = {};
  Want(Cu().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS, "cuMemPoolCreate");
  Want(Cu().cuMemAllocFromPoolAsync(&memory, size, pool, nullptr), CUDA_SUCCESS, "allocation");
  Want(Cu().cuMemsetD8Async(memory, 0x21, size, nullptr), CUDA_SUCCESS, "memset");
  Want(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS, "cuStreamSynchronize");
  Want(Cu().cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0), CUDA_SUCCESS, "export");
  Want(Cu().cuMemPoolExportPointer(&data, memory), CUDA_SUCCESS, "export of the pointer");
  if (wrong != 0) return wrong;
  char go = 0;
  Hold(SendDescriptor(socket, fd, data) && read(socket, &go, 1) == 1, "the socket failed");
  if (wrong == 0) raise(SIGKILL);
  return wrong;
}

}  // namespace gpuloom::conformance
