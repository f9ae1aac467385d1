// SPDX-License-Identifier: Apache-2.0
// Host memory, managed memory, and questions about addresses.
#include <sys/mman.h>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTooMuch = size_t{1} << 46;
constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

}  // namespace

void WrongHostMemory(Calls& c, const Place&) {
  const Driver& cu = Cu();
  void* host = nullptr;
  void* other = nullptr;
  CUdeviceptr device = 0;
  unsigned flags = 0;
  c("cuMemHostAlloc without output", [&] { return cu.cuMemHostAlloc(nullptr, kPage, 0); });
  c("cuMemHostAlloc of nothing", [&] { return cu.cuMemHostAlloc(&other, 0, 0); });
  c("cuMemHostAlloc with unknown flags", [&] { return cu.cuMemHostAlloc(&other, kPage, 0x100); });
  c("cuMemHostAlloc with all flags", [&] { return cu.cuMemHostAlloc(&other, kPage, ~0u); });
  c("cuMemHostAlloc of 64 TiB", [&] { return cu.cuMemHostAlloc(&other, kTooMuch, 0); });
  c("cuMemAllocHost without output", [&] { return cu.cuMemAllocHost_v2(nullptr, kPage); });
  c("cuMemAllocHost of nothing", [&] { return cu.cuMemAllocHost_v2(&other, 0); });
  c("cuMemFreeHost of NULL", [&] { return cu.cuMemFreeHost(nullptr); });
  c("cuMemFreeHost of the stack", [&] { return cu.cuMemFreeHost(&flags); });
  c("cuMemFreeHost of nowhere",
    [&] { return cu.cuMemFreeHost(reinterpret_cast<void*>(kNowhere)); });
  if (!c.Has("cuMemHostAlloc", cu.cuMemHostAlloc(&host, 4 * kPage, CU_MEMHOSTALLOC_PORTABLE)))
    return;
  char* const bytes = static_cast<char*>(host);
  c("cuMemFreeHost of an inner address", [&] { return cu.cuMemFreeHost(bytes + kPage); });
  c("cuMemHostGetDevicePointer without output",
    [&] { return cu.cuMemHostGetDevicePointer_v2(nullptr, host, 0); });
  c("cuMemHostGetDevicePointer with flags",
    [&] { return cu.cuMemHostGetDevicePointer_v2(&device, host, 1); });
  c("cuMemHostGetDevicePointer of the stack",
    [&] { return cu.cuMemHostGetDevicePointer_v2(&device, &flags, 0); });
  c("cuMemHostGetDevicePointer of NULL",
    [&] { return cu.cuMemHostGetDevicePointer_v2(&device, nullptr, 0); });
  c("cuMemHostGetDevicePointer of an inner address",
    [&] { return cu.cuMemHostGetDevicePointer_v2(&device, bytes + 100, 0); });
  c("cuMemHostGetFlags without output", [&] { return cu.cuMemHostGetFlags(nullptr, host); });
  c("cuMemHostGetFlags of the stack", [&] { return cu.cuMemHostGetFlags(&flags, &flags); });
  c("cuMemHostGetFlags of NULL", [&] { return cu.cuMemHostGetFlags(&flags, nullptr); });
  c("cuMemHostRegister of pinned memory",
    [&] { return cu.cuMemHostRegister_v2(host, 4 * kPage, 0); });
  c("cuMemHostUnregister of pinned memory", [&] { return cu.cuMemHostUnregister(host); });
  void* pages =
      mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* const page = static_cast<char*>(pages);
  for (size_t i = 0; i < 8; ++i) page[i * kPage] = 1;
  c("cuMemHostRegister of NULL", [&] { return cu.cuMemHostRegister_v2(nullptr, kPage, 0); });
  c("cuMemHostRegister of nothing", [&] { return cu.cuMemHostRegister_v2(page, 0, 0); });
  c("cuMemHostRegister with unknown flags",
    [&] { return cu.cuMemHostRegister_v2(page, kPage, 0x100); });
  c("cuMemHostRegister of nowhere",
    [&] { return cu.cuMemHostRegister_v2(reinterpret_cast<void*>(kNowhere), kPage, 0); });
  void* const code = reinterpret_cast<void*>(&WrongHostMemory);
  c("cuMemHostRegister of code", [&] { return cu.cuMemHostRegister_v2(code, 4, 0); });
  c("cuMemHostRegister of code as read-only",
    [&] { return cu.cuMemHostRegister_v2(code, 4, CU_MEMHOSTREGISTER_READ_ONLY); });
  c("cuMemHostGetFlags of read-only memory", [&] {
    unsigned flags = 0;
    return cu.cuMemHostGetFlags(&flags, code);
  });
  c("cuMemHostUnregister of code", [&] { return cu.cuMemHostUnregister(code); });
  c("cuMemHostRegister of pages without access", [&] {
    (void)mprotect(page + 7 * kPage, kPage, PROT_NONE);
    const CUresult result = cu.cuMemHostRegister_v2(page + 7 * kPage, kPage, 0);
    (void)mprotect(page + 7 * kPage, kPage, PROT_READ | PROT_WRITE);
    return result;
  });
  c("cuMemHostUnregister of NULL", [&] { return cu.cuMemHostUnregister(nullptr); });
  c("cuMemHostUnregister of what was not registered", [&] { return cu.cuMemHostUnregister(page); });
  if (!c.Has("cuMemHostRegister", cu.cuMemHostRegister_v2(page, 4 * kPage, 0))) return;
  c("cuMemHostRegister a second time", [&] { return cu.cuMemHostRegister_v2(page, 4 * kPage, 0); });
  c("cuMemHostRegister overlapping",
    [&] { return cu.cuMemHostRegister_v2(page + 2 * kPage, 4 * kPage, 0); });
  c("cuMemHostUnregister of an inner address",
    [&] { return cu.cuMemHostUnregister(page + kPage); });
  c("cuMemFreeHost of registered memory", [&] { return cu.cuMemFreeHost(page); });
  c("cuMemHostUnregister at last", [&] { return cu.cuMemHostUnregister(page); });
  c("cuMemHostUnregister a second time", [&] { return cu.cuMemHostUnregister(page); });
  c("cuMemHostGetDevicePointer of unregistered memory",
    [&] { return cu.cuMemHostGetDevicePointer_v2(&device, page, 0); });
  c("cuMemFreeHost at last", [&] { return cu.cuMemFreeHost(host); });
  c("cuMemFreeHost a second time", [&] { return cu.cuMemFreeHost(host); });
}

namespace {

void WrongBatches(Calls& c, CUdeviceptr memory, CUdeviceptr device_memory, CUmemLocation here) {
  const Driver& cu = Cu();
  CUdeviceptr both[] = {memory, memory + kPage}, mixed[] = {memory, device_memory};
  size_t sizes[] = {kPage, kPage}, nothing[] = {kPage, 0}, large[] = {kPage, 1000 * kPage};
  CUmemLocation places[] = {here, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  CUmemLocation far[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 7}, here};
  size_t first[] = {0, 1}, late[] = {1, 1}, equal[] = {0, 0}, beyond[] = {0, 2};
  const auto prefetch = [&](CUdeviceptr* addresses, size_t* bytes, CUmemLocation* to, size_t* from,
                            CUstream stream = CU_STREAM_PER_THREAD) {
    return cu.cuMemPrefetchBatchAsync(addresses, bytes, 2, to, from, 2, 0, stream);
  };
  c("cuMemPrefetchBatchAsync with flags", [&] {
    return cu.cuMemPrefetchBatchAsync(both, sizes, 2, places, first, 2, 1, CU_STREAM_PER_THREAD);
  });
  c("cuMemPrefetchBatchAsync of none", [&] {
    return cu.cuMemPrefetchBatchAsync(both, sizes, 0, places, first, 2, 0, CU_STREAM_PER_THREAD);
  });
  c("cuMemPrefetchBatchAsync to more places than ranges", [&] {
    return cu.cuMemPrefetchBatchAsync(both, sizes, 1, places, first, 2, 0, CU_STREAM_PER_THREAD);
  });
  c("cuMemPrefetchBatchAsync to no places", [&] {
    return cu.cuMemPrefetchBatchAsync(both, sizes, 2, places, first, 0, 0, CU_STREAM_PER_THREAD);
  });
  c("cuMemPrefetchBatchAsync without addresses",
    [&] { return prefetch(nullptr, sizes, places, first); });
  c("cuMemPrefetchBatchAsync without sizes",
    [&] { return prefetch(both, nullptr, places, first); });
  c("cuMemPrefetchBatchAsync without places",
    [&] { return prefetch(both, sizes, nullptr, first); });
  c("cuMemPrefetchBatchAsync without indices",
    [&] { return prefetch(both, sizes, places, nullptr); });
  c("cuMemPrefetchBatchAsync that begins at the second",
    [&] { return prefetch(both, sizes, places, late); });
  c("cuMemPrefetchBatchAsync with equal indices",
    [&] { return prefetch(both, sizes, places, equal); });
  c("cuMemPrefetchBatchAsync with an index beyond the end",
    [&] { return prefetch(both, sizes, places, beyond); });
  c("cuMemPrefetchBatchAsync in the default stream",
    [&] { return prefetch(both, sizes, places, first, nullptr); });
  c("cuMemPrefetchBatchAsync of device memory",
    [&] { return prefetch(mixed, sizes, places, first); });
  c("cuMemPrefetchBatchAsync of nothing", [&] { return prefetch(both, nothing, places, first); });
  c("cuMemPrefetchBatchAsync of too much", [&] { return prefetch(both, large, places, first); });
  c("cuMemPrefetchBatchAsync to no device", [&] { return prefetch(both, sizes, far, first); });
  c("cuMemDiscardBatchAsync with flags",
    [&] { return cu.cuMemDiscardBatchAsync(both, sizes, 2, 1, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardBatchAsync of none",
    [&] { return cu.cuMemDiscardBatchAsync(both, sizes, 0, 0, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardBatchAsync without addresses",
    [&] { return cu.cuMemDiscardBatchAsync(nullptr, sizes, 2, 0, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardBatchAsync without sizes",
    [&] { return cu.cuMemDiscardBatchAsync(both, nullptr, 2, 0, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardBatchAsync of device memory",
    [&] { return cu.cuMemDiscardBatchAsync(mixed, sizes, 2, 0, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardBatchAsync in the default stream",
    [&] { return cu.cuMemDiscardBatchAsync(both, sizes, 2, 0, nullptr); });
  c("cuMemDiscardBatchAsync of nothing",
    [&] { return cu.cuMemDiscardBatchAsync(both, nothing, 2, 0, CU_STREAM_PER_THREAD); });
  c("cuMemDiscardAndPrefetchBatchAsync of device memory", [&] {
    return cu.cuMemDiscardAndPrefetchBatchAsync(mixed, sizes, 2, places, first, 2, 0,
                                                CU_STREAM_PER_THREAD);
  });
}

}  // namespace

void WrongManagedMemory(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0, other = 0, device_memory = 0;
  int number = 0;
  const CUmemLocation here{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at.device};
  const CUmemLocation nowhere{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1000};
  c("cuMemAllocManaged without output",
    [&] { return cu.cuMemAllocManaged(nullptr, kPage, CU_MEM_ATTACH_GLOBAL); });
  c("cuMemAllocManaged of nothing",
    [&] { return cu.cuMemAllocManaged(&other, 0, CU_MEM_ATTACH_GLOBAL); });
  c("cuMemAllocManaged without flags", [&] { return cu.cuMemAllocManaged(&other, kPage, 0); });
  c("cuMemAllocManaged with CU_MEM_ATTACH_SINGLE",
    [&] { return cu.cuMemAllocManaged(&other, kPage, CU_MEM_ATTACH_SINGLE); });
  c("cuMemAllocManaged with unknown flags",
    [&] { return cu.cuMemAllocManaged(&other, kPage, 0x100); });
  if (!c.Has("cuMemAllocManaged", cu.cuMemAllocManaged(&memory, 64 * kPage, CU_MEM_ATTACH_GLOBAL)))
    return;
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&device_memory, 64 * kPage))) return;
  c("cuMemAdvise unknown",
    [&] { return cu.cuMemAdvise_v2(memory, kPage, static_cast<CUmem_advise>(99), here); });
  c("cuMemAdvise of nothing",
    [&] { return cu.cuMemAdvise_v2(memory, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here); });
  c("cuMemAdvise of nowhere",
    [&] { return cu.cuMemAdvise_v2(kNowhere, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, here); });
  c("cuMemAdvise of device memory",
    [&] { return cu.cuMemAdvise_v2(device_memory, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, here); });
  c("cuMemAdvise for no device", [&] {
    return cu.cuMemAdvise_v2(memory, kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere);
  });
  c("cuMemPrefetchAsync with flags",
    [&] { return cu.cuMemPrefetchAsync_v2(memory, kPage, here, 1, nullptr); });
  c("cuMemPrefetchAsync of nothing",
    [&] { return cu.cuMemPrefetchAsync_v2(memory, 0, here, 0, nullptr); });
  c("cuMemPrefetchAsync of nowhere",
    [&] { return cu.cuMemPrefetchAsync_v2(kNowhere, kPage, here, 0, nullptr); });
  c("cuMemPrefetchAsync of device memory",
    [&] { return cu.cuMemPrefetchAsync_v2(device_memory, kPage, here, 0, nullptr); });
  c("cuMemPrefetchAsync to no device",
    [&] { return cu.cuMemPrefetchAsync_v2(memory, kPage, nowhere, 0, nullptr); });
  WrongBatches(c, memory, device_memory, here);
  c("cuMemRangeGetAttribute without output", [&] {
    return cu.cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kPage);
  });
  c("cuMemRangeGetAttribute of a wrong size", [&] {
    return cu.cuMemRangeGetAttribute(&number, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kPage);
  });
  c("cuMemRangeGetAttribute unknown", [&] {
    return cu.cuMemRangeGetAttribute(&number, 4, static_cast<CUmem_range_attribute>(99), memory,
                                     kPage);
  });
  c("cuMemRangeGetAttribute of device memory", [&] {
    return cu.cuMemRangeGetAttribute(&number, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, device_memory,
                                     kPage);
  });
  c("cuStreamAttachMemAsync of device memory",
    [&] { return cu.cuStreamAttachMemAsync(nullptr, device_memory, 0, CU_MEM_ATTACH_GLOBAL); });
  c("cuStreamAttachMemAsync with unknown flags",
    [&] { return cu.cuStreamAttachMemAsync(nullptr, memory, 0, 0x100); });
  c("cuStreamAttachMemAsync to the default stream alone",
    [&] { return cu.cuStreamAttachMemAsync(nullptr, memory, 0, CU_MEM_ATTACH_SINGLE); });
  c("cuMemFree of an inner address", [&] { return cu.cuMemFree_v2(memory + kPage); });
  c("cuMemFree at last", [&] { return cu.cuMemFree_v2(memory); });
  c("cuMemFree a second time", [&] { return cu.cuMemFree_v2(memory); });
}

void WrongPointers(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0, base = 0;
  size_t size_bytes = 0;
  int number = 0;
  uint64_t wide = 0;
  void* pointer = nullptr;
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, kPage))) return;
  const CUdeviceptr stack = reinterpret_cast<CUdeviceptr>(&number);
  const auto attribute = [&](void* data, int which, CUdeviceptr address) {
    return cu.cuPointerGetAttribute(data, static_cast<CUpointer_attribute>(which), address);
  };
  c("cuPointerGetAttribute without output",
    [&] { return attribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory); });
  c("cuPointerGetAttribute 0", [&] { return attribute(&wide, 0, memory); });
  c("cuPointerGetAttribute 999", [&] { return attribute(&wide, 999, memory); });
  c("cuPointerGetAttribute memory type of NULL",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0); });
  c("cuPointerGetAttribute memory type of the stack",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, stack); });
  c("cuPointerGetAttribute context of the stack",
    [&] { return attribute(&pointer, CU_POINTER_ATTRIBUTE_CONTEXT, stack); });
  c("cuPointerGetAttribute device pointer of nowhere",
    [&] { return attribute(&wide, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, kNowhere); });
  c("cuPointerGetAttribute host pointer of device memory",
    [&] { return attribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory); });
  c("cuPointerGetAttribute tokens of device memory", [&] {
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    return attribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, stack);
  });
  c("cuPointerGetAttribute buffer id of the stack",
    [&] { return attribute(&wide, CU_POINTER_ATTRIBUTE_BUFFER_ID, stack); });
  c("cuPointerGetAttribute managed of the stack",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_IS_MANAGED, stack); });
  c("cuPointerGetAttribute ordinal of the stack",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, stack); });
  c("cuPointerGetAttribute range of the stack",
    [&] { return attribute(&wide, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, stack); });
  c("cuPointerGetAttribute mapped of the stack",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_MAPPED, stack); });
  c("cuPointerGetAttribute pool of the stack",
    [&] { return attribute(&pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, stack); });
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&number, &wide};
  c("cuPointerGetAttributes of none",
    [&] { return cu.cuPointerGetAttributes(0, attributes, data, memory); });
  c("cuPointerGetAttributes without a list",
    [&] { return cu.cuPointerGetAttributes(2, nullptr, data, memory); });
  c("cuPointerGetAttributes without output",
    [&] { return cu.cuPointerGetAttributes(2, attributes, nullptr, memory); });
  c("cuPointerGetAttributes of the stack",
    [&] { return cu.cuPointerGetAttributes(2, attributes, data, stack); });
  c("cuPointerGetAttributes with an unknown one", [&] {
    CUpointer_attribute unknown[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                     static_cast<CUpointer_attribute>(999)};
    return cu.cuPointerGetAttributes(2, unknown, data, memory);
  });
  c("cuPointerSetAttribute unknown", [&] {
    return cu.cuPointerSetAttribute(&number, static_cast<CUpointer_attribute>(999), memory);
  });
  c("cuPointerSetAttribute of the memory type",
    [&] { return cu.cuPointerSetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory); });
  c("cuPointerSetAttribute without a value",
    [&] { return cu.cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory); });
  c("cuPointerSetAttribute of the stack",
    [&] { return cu.cuPointerSetAttribute(&number, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, stack); });
  c("cuMemGetAddressRange of nowhere",
    [&] { return cu.cuMemGetAddressRange_v2(&base, &size_bytes, kNowhere); });
  c("cuMemGetAddressRange of the stack",
    [&] { return cu.cuMemGetAddressRange_v2(&base, &size_bytes, stack); });
  c("cuMemGetAddressRange of NULL",
    [&] { return cu.cuMemGetAddressRange_v2(&base, &size_bytes, 0); });
  c("cuMemGetAddressRange without outputs",
    [&] { return cu.cuMemGetAddressRange_v2(nullptr, nullptr, memory); });
  c("cuMemGetAddressRange of freed memory", [&] {
    (void)cu.cuMemFree_v2(memory);
    return cu.cuMemGetAddressRange_v2(&base, &size_bytes, memory);
  });
  c("cuPointerGetAttribute memory type of freed memory",
    [&] { return attribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory); });
}

}  // namespace gpuloom::conformance
