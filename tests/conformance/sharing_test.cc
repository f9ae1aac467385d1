// SPDX-License-Identifier: Apache-2.0
// Memory and events that another process opens: the child's half is in children.cc. The codes of
// wrong calls are those of driver 580 on an H200.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/children.h"
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class Sharing : public WithKernels {
 protected:
  // The software driver has no legacy handles.
  static bool HasHandles(CUdeviceptr memory) {
    CUipcMemHandle handle;
    return Cu().cuIpcGetMemHandle(&handle, memory) != CUDA_ERROR_NOT_SUPPORTED;
  }
};

TEST_F(Sharing, AnotherProcessUsesMemoryAndEvent) {
  for (const size_t size : {size_t{4096}, 3 * kMiB}) {
    const CUdeviceptr memory = Alloc(size);
    if (!HasHandles(memory)) GTEST_SKIP() << "this driver has no legacy handles";
    CUipcMemHandle memory_handle;
    ASSERT_EQ(Cu().cuIpcGetMemHandle(&memory_handle, memory), CUDA_SUCCESS);
    const CUevent event = Event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    CUipcEventHandle event_handle;
    ASSERT_EQ(Cu().cuIpcGetEventHandle(&event_handle, event), CUDA_SUCCESS);
    const CUstream stream = Stream();
    ASSERT_EQ(Cu().cuMemsetD8Async(memory, 0x21, size, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
    PassToChild("GPULOOM_TEST_MEMORY", memory_handle);
    PassToChild("GPULOOM_TEST_EVENT", event_handle);
    PassToChild("GPULOOM_TEST_SIZE", size);
    ASSERT_EQ(RunChild("opens_handles"), 0);
    ASSERT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint8_t>(memory, size), std::vector<uint8_t>(size, 0x42));
  }
}

// UCX, and with it MPI, looks there before it asks for a handle.
TEST_F(Sharing, PointersTellWhetherTheyHaveHandles) {
  const CUdeviceptr memory = Alloc(4096);
  if (!HasHandles(memory)) GTEST_SKIP() << "this driver has no legacy handles";
  const CUstream stream = Stream();
  CUdeviceptr pooled = 0, managed = 0;
  ASSERT_EQ(Cu().cuMemAllocAsync(&pooled, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  const auto pinned = reinterpret_cast<CUdeviceptr>(HostAlloc(4096));
  for (const CUdeviceptr address : {memory, memory + 100, pooled, managed, pinned}) {
    unsigned has = 7;
    EXPECT_EQ(
        Cu().cuPointerGetAttribute(&has, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address),
        CUDA_SUCCESS);
    EXPECT_EQ(has, address - memory < 4096 ? 1u : 0u);
    CUipcMemHandle handle;
    EXPECT_EQ(Cu().cuIpcGetMemHandle(&handle, address),
              has == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(Cu().cuMemFree_v2(managed), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(pooled, stream), CUDA_SUCCESS);
}

TEST_F(Sharing, AnEventOfThisProcessStaysAnEvent) {
  if (!HasHandles(Alloc(4096))) GTEST_SKIP() << "this driver has no legacy handles";
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  CUipcEventHandle handle;
  ASSERT_EQ(Cu().cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  const CUstream stream = Stream();
  const CUstream other = Stream();
  Block(stream);
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(Cu().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  const CUdeviceptr memory = Alloc(4096);
  ASSERT_EQ(Cu().cuMemsetD8Async(memory, 1, 4096, other), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(other), CUDA_ERROR_NOT_READY);
  Open();
  ASSERT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
}

TEST_F(Sharing, ADescriptorsMemoryInAnotherProcess) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const size_t size = 4 * kMiB;
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  ASSERT_EQ(Cu().cuMemCreate(&memory, size, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemMap(address, size, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(address, size, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8_v2(address, 0x21, size), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  int exported = -1;
  ASSERT_EQ(Cu().cuMemExportToShareableHandle(&exported, memory,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  const int inherited = fcntl(exported, F_DUPFD, 3);  // without close-on-exec
  PassToChild("GPULOOM_TEST_DESCRIPTOR", inherited);
  PassToChild("GPULOOM_TEST_SIZE", size);
  EXPECT_EQ(RunChild("imports_descriptor"), 0);
  close(inherited);
  close(exported);
  EXPECT_EQ(Download<uint8_t>(address, size), std::vector<uint8_t>(size, 0x42));
  EXPECT_EQ(Cu().cuMemUnmap(address, size), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemAddressFree(address, size), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemRelease(memory), CUDA_SUCCESS);
}

TEST_F(Sharing, WrongCalls) {
  const CUdeviceptr memory = Alloc(4096);
  if (!HasHandles(memory)) GTEST_SKIP() << "this driver has no legacy handles";
  int local = 0;
  CUipcMemHandle handle = {};
  CUdeviceptr opened = 0;
  EXPECT_EQ(Cu().cuIpcGetMemHandle(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuIpcGetMemHandle(&handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuIpcGetMemHandle(&handle, 0x1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      Cu().cuIpcOpenMemHandle_v2(&opened, CUipcMemHandle{}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT)
      << "its own memory";
  EXPECT_EQ(Cu().cuIpcCloseMemHandle(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuIpcCloseMemHandle(0x1000), CUDA_ERROR_INVALID_VALUE);

  CUevent wrong = nullptr;
  EXPECT_EQ(Cu().cuEventCreate(&wrong, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  CUipcEventHandle event_handle = {};
  EXPECT_EQ(Cu().cuIpcGetEventHandle(&event_handle, Event(CU_EVENT_DISABLE_TIMING)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuIpcOpenEventHandle(&wrong, CUipcEventHandle{}), CUDA_ERROR_MAP_FAILED);
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  EXPECT_EQ(Cu().cuIpcGetEventHandle(nullptr, event), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuIpcGetEventHandle(&event_handle, event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuIpcOpenEventHandle(&wrong, event_handle), CUDA_ERROR_INVALID_CONTEXT)
      << "its own event";
}

}  // namespace
}  // namespace gpuloom::conformance
