// SPDX-License-Identifier: Apache-2.0
// Virtual memory, stream-ordered memory and pools, sharing between processes.
#include <unistd.h>

#include <cstring>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kGranule = 2 << 20;
constexpr size_t kTooMuch = size_t{1} << 46;
constexpr CUdeviceptr kNowhere = 0x1234'5678'0000'0000;

CUmemAllocationProp Pinned(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return prop;
}

CUmemAccessDesc Access(CUdevice device) {
  return {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

}  // namespace

void WrongVirtualMemory(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  const CUmemAllocationProp prop = Pinned(at.device);
  const CUmemAccessDesc access = Access(at.device);
  CUmemAllocationProp wrong{};
  CUmemAccessDesc wrong_access{};
  CUmemGenericAllocationHandle handle = 0, other = 0;
  CUdeviceptr range = 0, elsewhere = 0;
  size_t size_bytes = 0;
  unsigned long long flags = 0;
  int fd = -1;
  c("cuMemGetAllocationGranularity without output", [&] {
    return cu.cuMemGetAllocationGranularity(nullptr, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  c("cuMemGetAllocationGranularity without properties", [&] {
    return cu.cuMemGetAllocationGranularity(&size_bytes, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  c("cuMemGetAllocationGranularity unknown", [&] {
    return cu.cuMemGetAllocationGranularity(&size_bytes, &prop,
                                            static_cast<CUmemAllocationGranularity_flags>(9));
  });
  c("cuMemGetAllocationGranularity of empty properties", [&] {
    return cu.cuMemGetAllocationGranularity(&size_bytes, &wrong, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  c("cuMemGetAllocationGranularity of no device", [&] {
    wrong = Pinned(1000);
    return cu.cuMemGetAllocationGranularity(&size_bytes, &wrong, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  c("cuMemCreate without output", [&] { return cu.cuMemCreate(nullptr, kGranule, &prop, 0); });
  c("cuMemCreate without properties", [&] { return cu.cuMemCreate(&other, kGranule, nullptr, 0); });
  c("cuMemCreate of nothing", [&] { return cu.cuMemCreate(&other, 0, &prop, 0); });
  c("cuMemCreate of half a granule",
    [&] { return cu.cuMemCreate(&other, kGranule / 2, &prop, 0); });
  c("cuMemCreate of a granule and a byte",
    [&] { return cu.cuMemCreate(&other, kGranule + 1, &prop, 0); });
  c("cuMemCreate with flags", [&] { return cu.cuMemCreate(&other, kGranule, &prop, 1); });
  c("cuMemCreate of an unknown type", [&] {
    wrong = prop;
    wrong.type = static_cast<CUmemAllocationType>(99);
    return cu.cuMemCreate(&other, kGranule, &wrong, 0);
  });
  c("cuMemCreate of an invalid location", [&] {
    wrong = prop;
    wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    return cu.cuMemCreate(&other, kGranule, &wrong, 0);
  });
  c("cuMemCreate on no device", [&] {
    wrong = Pinned(1000);
    return cu.cuMemCreate(&other, kGranule, &wrong, 0);
  });
  c("cuMemCreate of an unknown handle type", [&] {
    wrong = prop;
    wrong.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(0x40);
    return cu.cuMemCreate(&other, kGranule, &wrong, 0);
  });
  c("cuMemCreate of 64 TiB", [&] { return cu.cuMemCreate(&other, kTooMuch, &prop, 0); });
  c("cuMemAddressReserve without output",
    [&] { return cu.cuMemAddressReserve(nullptr, kGranule, 0, 0, 0); });
  c("cuMemAddressReserve of nothing",
    [&] { return cu.cuMemAddressReserve(&elsewhere, 0, 0, 0, 0); });
  c("cuMemAddressReserve of 1000 bytes",
    [&] { return cu.cuMemAddressReserve(&elsewhere, 1000, 0, 0, 0); });
  c("cuMemAddressReserve at an alignment of 3 granules",
    [&] { return cu.cuMemAddressReserve(&elsewhere, kGranule, 3 * kGranule, 0, 0); });
  c("cuMemAddressReserve with flags",
    [&] { return cu.cuMemAddressReserve(&elsewhere, kGranule, 0, 0, 1u << 20); });
  c("cuMemAddressReserve of everything",
    [&] { return cu.cuMemAddressReserve(&elsewhere, size_t{1} << 60, 0, 0, 0); });
  c("cuMemAddressFree of nowhere", [&] { return cu.cuMemAddressFree(kNowhere, kGranule); });
  c("cuMemAddressFree of NULL", [&] { return cu.cuMemAddressFree(0, kGranule); });
  if (!c.Has("cuMemCreate", cu.cuMemCreate(&handle, 2 * kGranule, &prop, 0))) return;
  if (!c.Has("cuMemAddressReserve", cu.cuMemAddressReserve(&range, 4 * kGranule, 0, 0, 0))) return;
  c("cuMemAddressFree of another size", [&] { return cu.cuMemAddressFree(range, kGranule); });
  c("cuMemAddressFree of an inner address",
    [&] { return cu.cuMemAddressFree(range + kGranule, 3 * kGranule); });
  c("cuMemMap of no handle", [&] { return cu.cuMemMap(range, 2 * kGranule, 0, 0, 0); });
  c("cuMemMap with flags", [&] { return cu.cuMemMap(range, 2 * kGranule, 0, handle, 1); });
  c("cuMemMap at an offset", [&] { return cu.cuMemMap(range, kGranule, kGranule, handle, 0); });
  c("cuMemMap of nothing", [&] { return cu.cuMemMap(range, 0, 0, handle, 0); });
  c("cuMemMap of 1000 bytes", [&] { return cu.cuMemMap(range, 1000, 0, handle, 0); });
  c("cuMemMap at an address of 1000",
    [&] { return cu.cuMemMap(range + 1000, 2 * kGranule, 0, handle, 0); });
  c("cuMemMap beyond the handle", [&] { return cu.cuMemMap(range, 4 * kGranule, 0, handle, 0); });
  c("cuMemMap beyond the range",
    [&] { return cu.cuMemMap(range + 3 * kGranule, 2 * kGranule, 0, handle, 0); });
  c("cuMemMap outside of every range",
    [&] { return cu.cuMemMap(kNowhere, 2 * kGranule, 0, handle, 0); });
  c("cuMemSetAccess of what is not mapped",
    [&] { return cu.cuMemSetAccess(range, 2 * kGranule, &access, 1); });
  c("cuMemUnmap of what is not mapped", [&] { return cu.cuMemUnmap(range, 2 * kGranule); });
  c("cuMemGetAccess of what is not mapped",
    [&] { return cu.cuMemGetAccess(&flags, &access.location, range); });
  c("cuMemRetainAllocationHandle of what is not mapped",
    [&] { return cu.cuMemRetainAllocationHandle(&other, reinterpret_cast<void*>(range)); });
  if (!c.Has("cuMemMap", cu.cuMemMap(range, 2 * kGranule, 0, handle, 0))) return;
  c("cuMemMap of what is mapped", [&] { return cu.cuMemMap(range, 2 * kGranule, 0, handle, 0); });
  c("cuMemMap overlapping",
    [&] { return cu.cuMemMap(range + kGranule, 2 * kGranule, 0, handle, 0); });
  c("cuMemAddressFree of what is mapped", [&] { return cu.cuMemAddressFree(range, 4 * kGranule); });
  c("cuMemSetAccess without a description",
    [&] { return cu.cuMemSetAccess(range, 2 * kGranule, nullptr, 1); });
  c("cuMemSetAccess of no description",
    [&] { return cu.cuMemSetAccess(range, 2 * kGranule, &access, 0); });
  c("cuMemSetAccess for no device", [&] {
    wrong_access = Access(1000);
    return cu.cuMemSetAccess(range, 2 * kGranule, &wrong_access, 1);
  });
  c("cuMemSetAccess of an unknown protection", [&] {
    wrong_access = access;
    wrong_access.flags = static_cast<CUmemAccess_flags>(9);
    return cu.cuMemSetAccess(range, 2 * kGranule, &wrong_access, 1);
  });
  c("cuMemSetAccess of 1000 bytes", [&] { return cu.cuMemSetAccess(range, 1000, &access, 1); });
  c("cuMemSetAccess beyond what is mapped",
    [&] { return cu.cuMemSetAccess(range, 4 * kGranule, &access, 1); });
  c("cuMemsetD8 of what has no access", [&] { return cu.cuMemsetD8_v2(range, 1, 16); });
  if (!c.Has("cuMemSetAccess", cu.cuMemSetAccess(range, 2 * kGranule, &access, 1))) return;
  c("cuMemGetAccess without output",
    [&] { return cu.cuMemGetAccess(nullptr, &access.location, range); });
  c("cuMemGetAccess without a location", [&] { return cu.cuMemGetAccess(&flags, nullptr, range); });
  c("cuMemGetAccess of nowhere",
    [&] { return cu.cuMemGetAccess(&flags, &access.location, kNowhere); });
  c("cuMemFree of a mapped range", [&] { return cu.cuMemFree_v2(range); });
  c("cuMemUnmap of a part", [&] { return cu.cuMemUnmap(range, kGranule); });
  c("cuMemUnmap of the second half", [&] { return cu.cuMemUnmap(range + kGranule, kGranule); });
  c("cuMemUnmap of 1000 bytes", [&] { return cu.cuMemUnmap(range, 1000); });
  c("cuMemUnmap of more than is mapped", [&] { return cu.cuMemUnmap(range, 4 * kGranule); });
  c("cuMemUnmap of nowhere", [&] { return cu.cuMemUnmap(kNowhere, kGranule); });
  c("cuMemRetainAllocationHandle without output",
    [&] { return cu.cuMemRetainAllocationHandle(nullptr, reinterpret_cast<void*>(range)); });
  c("cuMemRetainAllocationHandle of NULL",
    [&] { return cu.cuMemRetainAllocationHandle(&other, nullptr); });
  c("cuMemGetAllocationPropertiesFromHandle without output",
    [&] { return cu.cuMemGetAllocationPropertiesFromHandle(nullptr, handle); });
  c("cuMemGetAllocationPropertiesFromHandle of none",
    [&] { return cu.cuMemGetAllocationPropertiesFromHandle(&wrong, 0); });
  c("cuMemExportToShareableHandle of what was not made for it", [&] {
    return cu.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           0);
  });
  c("cuMemExportToShareableHandle without output", [&] {
    return cu.cuMemExportToShareableHandle(nullptr, handle,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  });
  c("cuMemExportToShareableHandle with flags", [&] {
    return cu.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           1);
  });
  c("cuMemExportToShareableHandle of none", [&] {
    return cu.cuMemExportToShareableHandle(&fd, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  });
  c("cuMemImportFromShareableHandle of no descriptor", [&] {
    return cu.cuMemImportFromShareableHandle(&other, reinterpret_cast<void*>(intptr_t{-1}),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
  c("cuMemImportFromShareableHandle of a pipe", [&] {
    int ends[2];
    if (pipe(ends) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    const CUresult result =
        cu.cuMemImportFromShareableHandle(&other, reinterpret_cast<void*>(intptr_t{ends[0]}),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(ends[0]);
    close(ends[1]);
    return result;
  });
  c("cuMemImportFromShareableHandle of an unknown type", [&] {
    return cu.cuMemImportFromShareableHandle(&other, nullptr,
                                             static_cast<CUmemAllocationHandleType>(0x40));
  });
  c("cuMemRelease of none", [&] { return cu.cuMemRelease(0); });
  c("cuMemRelease while it is mapped", [&] { return cu.cuMemRelease(handle); });
  c("cuMemUnmap at last", [&] { return cu.cuMemUnmap(range, 2 * kGranule); });
  c("cuMemUnmap a second time", [&] { return cu.cuMemUnmap(range, 2 * kGranule); });
  c("cuMemAddressFree at last", [&] { return cu.cuMemAddressFree(range, 4 * kGranule); });
  c("cuMemAddressFree a second time", [&] { return cu.cuMemAddressFree(range, 4 * kGranule); });
}

void WrongPools(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUmemPoolProps props{};
  CUmemoryPool pool = nullptr, other = nullptr, own = nullptr;
  CUdeviceptr memory = 0, from_pool = 0, synchronous = 0;
  uint64_t value = 0;
  int fd = -1;
  const CUmemAccessDesc access = Access(at.device);
  CUmemAccess_flags flags;
  CUmemPoolPtrExportData exported{};
  c("cuMemPoolCreate without output", [&] { return cu.cuMemPoolCreate(nullptr, &props); });
  c("cuMemPoolCreate without properties", [&] { return cu.cuMemPoolCreate(&other, nullptr); });
  c("cuMemPoolCreate of empty properties", [&] { return cu.cuMemPoolCreate(&other, &props); });
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1000};
  c("cuMemPoolCreate on no device", [&] { return cu.cuMemPoolCreate(&other, &props); });
  props.location.id = at.device;
  c("cuMemPoolCreate of an unknown handle type", [&] {
    CUmemPoolProps wrong = props;
    wrong.handleTypes = static_cast<CUmemAllocationHandleType>(0x40);
    return cu.cuMemPoolCreate(&other, &wrong);
  });
  c("cuMemPoolDestroy of none", [&] { return cu.cuMemPoolDestroy(nullptr); });
  c("cuMemAllocAsync without output", [&] { return cu.cuMemAllocAsync(nullptr, 64, nullptr); });
  c("cuMemAllocAsync of nothing", [&] { return cu.cuMemAllocAsync(&memory, 0, nullptr); });
  c("cuMemAllocAsync of 64 TiB", [&] { return cu.cuMemAllocAsync(&memory, kTooMuch, nullptr); });
  c("cuMemAllocFromPoolAsync of no pool",
    [&] { return cu.cuMemAllocFromPoolAsync(&memory, 64, nullptr, nullptr); });
  c("cuMemFreeAsync of NULL", [&] { return cu.cuMemFreeAsync(0, nullptr); });
  c("cuMemFreeAsync of nowhere", [&] { return cu.cuMemFreeAsync(kNowhere, nullptr); });
  c("cuMemFreeAsync of the stack",
    [&] { return cu.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(&fd), nullptr); });
  c("cuMemPoolTrimTo of none", [&] { return cu.cuMemPoolTrimTo(nullptr, 0); });
  c("cuMemPoolGetAttribute of none",
    [&] { return cu.cuMemPoolGetAttribute(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value); });
  c("cuMemPoolSetAttribute of none",
    [&] { return cu.cuMemPoolSetAttribute(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value); });
  if (!c.Has("cuDeviceGetDefaultMemPool", cu.cuDeviceGetDefaultMemPool(&pool, at.device))) return;
  if (!c.Has("cuMemPoolCreate", cu.cuMemPoolCreate(&own, &props))) return;
  c("cuMemPoolDestroy of the default one", [&] { return cu.cuMemPoolDestroy(pool); });
  c("cuMemPoolGetAttribute without output",
    [&] { return cu.cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr); });
  c("cuMemPoolGetAttribute unknown",
    [&] { return cu.cuMemPoolGetAttribute(own, static_cast<CUmemPool_attribute>(99), &value); });
  c("cuMemPoolSetAttribute without a value",
    [&] { return cu.cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr); });
  c("cuMemPoolSetAttribute unknown",
    [&] { return cu.cuMemPoolSetAttribute(own, static_cast<CUmemPool_attribute>(99), &value); });
  c("cuMemPoolSetAttribute of the memory in use", [&] {
    value = 5;
    return cu.cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
  });
  c("cuMemPoolSetAttribute of the peak to 5", [&] {
    value = 5;
    return cu.cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
  });
  c("cuMemPoolSetAccess without a description",
    [&] { return cu.cuMemPoolSetAccess(own, nullptr, 1); });
  c("cuMemPoolSetAccess of none for its own device", [&] {
    CUmemAccessDesc none = access;
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return cu.cuMemPoolSetAccess(own, &none, 1);
  });
  c("cuMemPoolSetAccess for no device", [&] {
    const CUmemAccessDesc wrong = Access(1000);
    return cu.cuMemPoolSetAccess(own, &wrong, 1);
  });
  c("cuMemPoolGetAccess without output", [&] {
    CUmemLocation location = access.location;
    return cu.cuMemPoolGetAccess(nullptr, own, &location);
  });
  c("cuMemPoolGetAccess without a location",
    [&] { return cu.cuMemPoolGetAccess(&flags, own, nullptr); });
  c("cuMemPoolExportToShareableHandle of what was not made for it", [&] {
    return cu.cuMemPoolExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                               0);
  });
  c("cuMemPoolImportFromShareableHandle of no descriptor", [&] {
    return cu.cuMemPoolImportFromShareableHandle(&other, reinterpret_cast<void*>(intptr_t{-1}),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  });
  c("cuDeviceSetMemPool of none", [&] { return cu.cuDeviceSetMemPool(at.device, nullptr); });
  c("cuMemAllocFromPoolAsync of 64 TiB",
    [&] { return cu.cuMemAllocFromPoolAsync(&memory, kTooMuch, own, nullptr); });
  if (!c.Has("cuMemAllocFromPoolAsync",
             cu.cuMemAllocFromPoolAsync(&from_pool, 1 << 20, own, nullptr)))
    return;
  c("cuMemPoolExportPointer of what was not made for it",
    [&] { return cu.cuMemPoolExportPointer(&exported, from_pool); });
  c("cuMemPoolExportPointer without output",
    [&] { return cu.cuMemPoolExportPointer(nullptr, from_pool); });
  c("cuMemPoolImportPointer of garbage",
    [&] { return cu.cuMemPoolImportPointer(&memory, own, &exported); });
  c("cuMemFreeAsync of an inner address",
    [&] { return cu.cuMemFreeAsync(from_pool + 256, nullptr); });
  c("cuMemcpyDtoD beyond the end",
    [&] { return cu.cuMemcpyDtoD_v2(from_pool, from_pool + 512, size_t{1} << 40); });
  c("cuMemFreeAsync at last", [&] { return cu.cuMemFreeAsync(from_pool, nullptr); });
  c("cuMemFreeAsync a second time", [&] { return cu.cuMemFreeAsync(from_pool, nullptr); });
  c("cuMemFree after cuMemFreeAsync", [&] { return cu.cuMemFree_v2(from_pool); });
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&synchronous, 1 << 20))) return;
  c("cuMemFreeAsync of cuMemAlloc's memory",
    [&] { return cu.cuMemFreeAsync(synchronous, nullptr); });
  c("cuMemPoolDestroy of an unused one", [&] { return cu.cuMemPoolDestroy(own); });
}

void WrongSharing(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0, opened = 0;
  CUevent plain = nullptr, shared = nullptr, other = nullptr;
  CUipcMemHandle memory_handle{};
  CUipcEventHandle event_handle{};
  char stack[16];
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, 4 << 20))) return;
  c("cuIpcGetMemHandle without output", [&] { return cu.cuIpcGetMemHandle(nullptr, memory); });
  c("cuIpcGetMemHandle of NULL", [&] { return cu.cuIpcGetMemHandle(&memory_handle, 0); });
  c("cuIpcGetMemHandle of nowhere", [&] { return cu.cuIpcGetMemHandle(&memory_handle, kNowhere); });
  c("cuIpcGetMemHandle of the stack",
    [&] { return cu.cuIpcGetMemHandle(&memory_handle, reinterpret_cast<CUdeviceptr>(stack)); });
  c("cuIpcOpenMemHandle without output", [&] {
    return cu.cuIpcOpenMemHandle_v2(nullptr, memory_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  });
  std::memset(&memory_handle, 0, sizeof(memory_handle));
  c("cuIpcOpenMemHandle of zeros", [&] {
    return cu.cuIpcOpenMemHandle_v2(&opened, memory_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  });
  c("cuIpcOpenMemHandle of its own memory", [&] {
    const CUresult made = cu.cuIpcGetMemHandle(&memory_handle, memory);
    return made != CUDA_SUCCESS ? made
                                : cu.cuIpcOpenMemHandle_v2(&opened, memory_handle,
                                                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  });
  c("cuIpcOpenMemHandle with unknown flags",
    [&] { return cu.cuIpcOpenMemHandle_v2(&opened, memory_handle, 0x80); });
  c("cuIpcCloseMemHandle of NULL", [&] { return cu.cuIpcCloseMemHandle(0); });
  c("cuIpcCloseMemHandle of its own memory", [&] { return cu.cuIpcCloseMemHandle(memory); });
  c("cuIpcCloseMemHandle of nowhere", [&] { return cu.cuIpcCloseMemHandle(kNowhere); });
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING))) return;
  c("cuEventCreate for processes, with timing",
    [&] { return cu.cuEventCreate(&other, CU_EVENT_INTERPROCESS); });
  c("cuIpcGetEventHandle of none", [&] { return cu.cuIpcGetEventHandle(&event_handle, nullptr); });
  c("cuIpcGetEventHandle of a plain event",
    [&] { return cu.cuIpcGetEventHandle(&event_handle, plain); });
  std::memset(&event_handle, 0, sizeof(event_handle));
  c("cuIpcOpenEventHandle of zeros", [&] { return cu.cuIpcOpenEventHandle(&other, event_handle); });
  if (!c.Has("cuEventCreate for processes",
             cu.cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)))
    return;
  c("cuIpcGetEventHandle without output", [&] { return cu.cuIpcGetEventHandle(nullptr, shared); });
  c("cuIpcOpenEventHandle of its own event", [&] {
    const CUresult made = cu.cuIpcGetEventHandle(&event_handle, shared);
    return made != CUDA_SUCCESS ? made : cu.cuIpcOpenEventHandle(&other, event_handle);
  });
}

}  // namespace gpuloom::conformance
