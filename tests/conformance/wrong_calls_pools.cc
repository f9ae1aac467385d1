// SPDX-License-Identifier: Apache-2.0
// Wrong calls around pools that processes share.
#include <fcntl.h>
#include <unistd.h>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void* AsHandle(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

}  // namespace

// Every case stands for itself: an import is done again in each that needs one.
void WrongSharedPools(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = kDescriptor;
  props.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at.device};
  CUmemoryPool pool = nullptr, second = nullptr, other = nullptr, fabric = nullptr;
  CUdeviceptr memory = 0, second_memory = 0, imported = 0;
  CUmemPoolPtrExportData data{}, second_data{}, exported{};
  int fd = -1;
  c("cuMemPoolCreate for fabric handles", [&] {
    CUmemPoolProps wrong = props;
    wrong.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    return cu.cuMemPoolCreate(&fabric, &wrong);
  });
  c("cuMemPoolExportToShareableHandle of a fabric pool", [&] {
    CUmemFabricHandle handle;
    return cu.cuMemPoolExportToShareableHandle(&handle, fabric, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  });
  c("cuMemPoolExportToShareableHandle of a fabric pool as a descriptor",
    [&] { return cu.cuMemPoolExportToShareableHandle(&fd, fabric, kDescriptor, 0); });
  c("cuMemPoolCreate for two kinds of handles", [&] {
    CUmemPoolProps wrong = props;
    wrong.handleTypes = static_cast<CUmemAllocationHandleType>(3);
    return cu.cuMemPoolCreate(&other, &wrong);
  });
  if (!c.Has("cuMemPoolCreate", cu.cuMemPoolCreate(&pool, &props))) return;
  if (!c.Has("cuMemPoolCreate", cu.cuMemPoolCreate(&second, &props))) return;
  if (!c.Has("cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(&memory, 8192, pool, nullptr)) ||
      !c.Has("cuMemAllocFromPoolAsync",
             cu.cuMemAllocFromPoolAsync(&second_memory, 8192, second, nullptr)) ||
      !c.Has("cuStreamSynchronize", cu.cuStreamSynchronize(nullptr))) {
    return;
  }
  c("cuMemPoolExportPointer before the pool is exported",
    [&] { return cu.cuMemPoolExportPointer(&exported, memory); });
  c("cuMemPoolExportToShareableHandle without output",
    [&] { return cu.cuMemPoolExportToShareableHandle(nullptr, pool, kDescriptor, 0); });
  c("cuMemPoolExportToShareableHandle of none",
    [&] { return cu.cuMemPoolExportToShareableHandle(&fd, nullptr, kDescriptor, 0); });
  c("cuMemPoolExportToShareableHandle with flags",
    [&] { return cu.cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 1); });
  c("cuMemPoolExportToShareableHandle of no type",
    [&] { return cu.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_NONE, 0); });
  c("cuMemPoolExportToShareableHandle of another type", [&] {
    CUmemFabricHandle handle;
    return cu.cuMemPoolExportToShareableHandle(&handle, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  });
  int second_fd = -1;
  if (!c.Has("cuMemPoolExportToShareableHandle",
             cu.cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0)) ||
      !c.Has("cuMemPoolExportToShareableHandle",
             cu.cuMemPoolExportToShareableHandle(&second_fd, second, kDescriptor, 0)) ||
      !c.Has("cuMemPoolExportPointer", cu.cuMemPoolExportPointer(&data, memory)) ||
      !c.Has("cuMemPoolExportPointer", cu.cuMemPoolExportPointer(&second_data, second_memory))) {
    return;
  }
  c("cuMemPoolExportPointer of NULL", [&] { return cu.cuMemPoolExportPointer(&exported, 0); });
  c("cuMemPoolExportPointer of an inner address",
    [&] { return cu.cuMemPoolExportPointer(&exported, memory + 4096); });
  c("cuMemPoolExportPointer of the stack",
    [&] { return cu.cuMemPoolExportPointer(&exported, reinterpret_cast<CUdeviceptr>(&exported)); });
  c("cuMemPoolExportPointer of cuMemAlloc's memory", [&] {
    CUdeviceptr plain = 0;
    const CUresult made = cu.cuMemAlloc_v2(&plain, 8192);
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolExportPointer(&exported, plain);
  });
  c("cuMemPoolImportFromShareableHandle without output",
    [&] { return cu.cuMemPoolImportFromShareableHandle(nullptr, AsHandle(fd), kDescriptor, 0); });
  c("cuMemPoolImportFromShareableHandle with flags",
    [&] { return cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(fd), kDescriptor, 1); });
  c("cuMemPoolImportFromShareableHandle of no type", [&] {
    return cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(fd), CU_MEM_HANDLE_TYPE_NONE, 0);
  });
  c("cuMemPoolImportFromShareableHandle of a file that is none", [&] {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(null), kDescriptor, 0);
  });
  c("cuMemPoolImportFromShareableHandle of memory's descriptor", [&] {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = props.location;
    wanted.requestedHandleTypes = kDescriptor;
    CUmemGenericAllocationHandle handle = 0;
    int physical = -1;
    CUresult made = cu.cuMemCreate(&handle, 2 << 20, &wanted, 0);
    if (made == CUDA_SUCCESS) {
      made = cu.cuMemExportToShareableHandle(&physical, handle, kDescriptor, 0);
    }
    return made != CUDA_SUCCESS
               ? made
               : cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(physical), kDescriptor, 0);
  });
  c("cuMemImportFromShareableHandle of a pool's descriptor", [&] {
    CUmemGenericAllocationHandle handle = 0;
    return cu.cuMemImportFromShareableHandle(&handle, AsHandle(fd), kDescriptor);
  });
  c("cuMemPoolImportPointer into the pool that it is of",
    [&] { return cu.cuMemPoolImportPointer(&imported, pool, &data); });
  c("cuMemPoolImportFromShareableHandle of its own pool",
    [&] { return cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(fd), kDescriptor, 0); });
  const auto imports = [&] {
    return cu.cuMemPoolImportFromShareableHandle(&other, AsHandle(fd), kDescriptor, 0);
  };
  c("cuMemPoolImportPointer of its own memory", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &data);
  });
  c("cuMemPoolImportPointer without output", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(nullptr, other, &data);
  });
  c("cuMemPoolImportPointer without data", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, nullptr);
  });
  c("cuMemPoolImportPointer into no pool",
    [&] { return cu.cuMemPoolImportPointer(&imported, nullptr, &data); });
  c("cuMemPoolImportPointer of zeros", [&] {
    const CUresult made = imports();
    CUmemPoolPtrExportData none{};
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &none);
  });
  c("cuMemPoolImportPointer of another pool's memory", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &second_data);
  });
  c("cuMemAllocFromPoolAsync of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made
                                : cu.cuMemAllocFromPoolAsync(&imported, 4096, other, nullptr);
  });
  c("cuDeviceSetMemPool of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuDeviceSetMemPool(at.device, other);
  });
  c("cuMemPoolExportToShareableHandle of an imported pool", [&] {
    const CUresult made = imports();
    int again = -1;
    return made != CUDA_SUCCESS
               ? made
               : cu.cuMemPoolExportToShareableHandle(&again, other, kDescriptor, 0);
  });
  c("cuMemPoolTrimTo of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolTrimTo(other, 0);
  });
  c("cuMemPoolSetAccess of none for an imported pool", [&] {
    const CUresult made = imports();
    const CUmemAccessDesc none = {props.location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolSetAccess(other, &none, 1);
  });
  uint64_t number = 0;
  c("cuMemPoolGetAttribute of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS
               ? made
               : cu.cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &number);
  });
  c("cuMemPoolSetAttribute of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS
               ? made
               : cu.cuMemPoolSetAttribute(other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &number);
  });
  c("cuMemPoolGetAccess of an imported pool", [&] {
    const CUresult made = imports();
    CUmemAccess_flags flags;
    CUmemLocation location = props.location;
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolGetAccess(&flags, other, &location);
  });
  const auto imports_pointer = [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &data);
  };
  c("cuMemPoolExportPointer of an imported pointer", [&] {
    const CUresult made = imports_pointer();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolExportPointer(&exported, imported);
  });
  c("cuMemPoolImportPointer a second time", [&] {
    const CUresult made = imports_pointer();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &data);
  });
  c("cuMemFreeAsync of an imported pointer", [&] {
    const CUresult made = imports_pointer();
    return made != CUDA_SUCCESS ? made : cu.cuMemFreeAsync(imported, nullptr);
  });
  c("cuMemFreeAsync of an imported pointer, for the second time", [&] {
    CUresult made = imports_pointer();
    if (made == CUDA_SUCCESS) made = cu.cuMemFreeAsync(imported, nullptr);
    return made != CUDA_SUCCESS ? made : cu.cuMemFreeAsync(imported, nullptr);
  });
  c("cuMemPoolDestroy of an imported pool", [&] {
    const CUresult made = imports();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolDestroy(other);
  });
  c("cuMemPoolDestroy of an imported pool in use", [&] {
    const CUresult made = imports_pointer();
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolDestroy(other);
  });
  c("cuMemPoolDestroy of an imported pool that was used", [&] {
    CUresult made = imports_pointer();
    if (made == CUDA_SUCCESS) made = cu.cuMemFree_v2(imported);
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolDestroy(other);
  });
  c("cuMemPoolImportPointer into a destroyed pool", [&] {
    CUresult made = imports();
    if (made == CUDA_SUCCESS) made = cu.cuMemPoolDestroy(other);
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolImportPointer(&imported, other, &data);
  });
  c("cuMemFree of what was imported twice, for the second time", [&] {
    CUresult made = imports();
    for (int i = 0; i < 2 && made == CUDA_SUCCESS; ++i) {
      made = cu.cuMemPoolImportPointer(&imported, other, &data);
    }
    if (made == CUDA_SUCCESS) made = cu.cuMemFree_v2(imported);
    return made != CUDA_SUCCESS ? made : cu.cuMemFree_v2(imported);
  });
  c("cuMemAllocFromPoolAsync of a shareable pool in a capture", [&] {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUresult made = cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (made == CUDA_SUCCESS) {
      made = cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
    if (made != CUDA_SUCCESS) return made;
    CUdeviceptr captured = 0;
    made = cu.cuMemAllocFromPoolAsync(&captured, 4096, pool, stream);
    cu.cuStreamEndCapture(stream, &graph);
    return made;
  });
  c("cuMemPoolExportPointer of freed memory", [&] {
    CUresult made = cu.cuMemFree_v2(second_memory);
    return made != CUDA_SUCCESS ? made : cu.cuMemPoolExportPointer(&exported, second_memory);
  });
  c("cuMemPoolDestroy of the exporter's", [&] { return cu.cuMemPoolDestroy(pool); });
}

}  // namespace gpuloom::conformance
