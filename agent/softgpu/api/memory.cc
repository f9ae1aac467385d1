// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc, cuMemHostAlloc and their relatives. Freeing waits for all work of the device, as
// CUDA's does; what a program frees too early all the same faults (docs/softgpu.md).
#include "agent/softgpu/driver/memory.h"

#include <algorithm>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"

namespace graph = gpuloom::graph;

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Hints, but for their being judged: all host memory can be reached from all contexts and devices
// here.
constexpr unsigned kHostFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
// Rows of a pitched allocation begin at multiples of this, as on compute capability 9.0.
constexpr uint64_t kPitchBytes = 512;

CUresult AllocateHost(void** pointer, size_t size_bytes, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (pointer == nullptr || (flags & ~kHostFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Not while a capture forbids calls that could wait (cuThreadExchangeStreamCaptureMode).
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  uint64_t begin = 0;
  const CUresult allocated =
      Memory::Instance().Allocate(*context, RegionKind::kHost, size_bytes, flags, begin);
  if (allocated == CUDA_SUCCESS) *pointer = reinterpret_cast<void*>(begin);
  return allocated;
}

bool IsHostKind(RegionKind kind) {
  return kind == RegionKind::kHost || kind == RegionKind::kRegistered;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const uint64_t total = context->device.memory_bytes;
  // What other processes have created is not counted: each process counts what it creates.
  if (free_bytes != nullptr)
    *free_bytes = total - std::min(total, context->device.used_bytes.load());
  if (total_bytes != nullptr) *total_bytes = total;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  size_t free_full = 0;
  size_t total_full = 0;
  CUDA_RETURN_IF_ERROR(cuMemGetInfo_v2(&free_full, &total_full));
  constexpr size_t kMost = 0xffffffffu;
  if (free_bytes != nullptr) *free_bytes = static_cast<unsigned>(std::min(free_full, kMost));
  if (total_bytes != nullptr) *total_bytes = static_cast<unsigned>(std::min(total_full, kMost));
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t size_bytes) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  uint64_t begin = 0;
  const CUresult allocated =
      Memory::Instance().Allocate(*context, RegionKind::kDevice, size_bytes, 0, begin);
  if (allocated == CUDA_SUCCESS) *pointer = begin;
  return allocated;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch_bytes, size_t width_bytes,
                            size_t height, unsigned element_bytes) {
  if (pitch_bytes == nullptr || width_bytes == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Below the largest allocation, so that the product cannot overflow.
  if (width_bytes > 0x7fffffff || height > (uint64_t{1} << 46) / width_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const size_t pitch = (width_bytes + kPitchBytes - 1) / kPitchBytes * kPitchBytes;
  const CUresult result = cuMemAlloc_v2(pointer, pitch * height);
  if (result == CUDA_SUCCESS) *pitch_bytes = pitch;
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t size_bytes, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (pointer == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t begin = 0;
  const CUresult allocated =
      Memory::Instance().Allocate(*context, RegionKind::kManaged, size_bytes, flags, begin);
  if (allocated == CUDA_SUCCESS) *pointer = begin;
  return allocated;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  // As in C, freeing nothing is no mistake.
  if (pointer == 0) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  // The memory of a graph's allocation node is freed by address, but kept by the graph.
  CUresult of_graph;
  if (graph::FreesGraphMemory(pointer, &of_graph)) return of_graph;
  const auto region = AddressTable::Instance().FindRegion(pointer);
  // Only the beginning of an allocation may be freed, and none that a stream is about to free.
  if (!region || region->begin != pointer || region->leaving ||
      (region->kind != RegionKind::kDevice && region->kind != RegionKind::kManaged)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SynchronizeDevice(*region->device);
  // The fault may have come while waiting; the memory stays then, as on a device that is lost.
  if (Fault() != CUDA_SUCCESS) return Fault();
  return Memory::Instance().Free(pointer, region->kind);
}

CUresult cuMemHostAlloc(void** pointer, size_t size_bytes, unsigned flags) {
  return AllocateHost(pointer, size_bytes, flags);
}

CUresult cuMemAllocHost_v2(void** pointer, size_t size_bytes) {
  return AllocateHost(pointer, size_bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemAllocHost(void** pointer, unsigned size_bytes) {
  return AllocateHost(pointer, size_bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void* pointer) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (pointer == nullptr) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  SynchronizeDevice(context->device);
  return Memory::Instance().Free(reinterpret_cast<uint64_t>(pointer), RegionKind::kHost);
}

CUresult cuMemHostRegister_v2(void* pointer, size_t size_bytes, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if ((flags & ~kRegisterFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto region = AddressTable::Instance().FindRegion(reinterpret_cast<uint64_t>(pointer));
  // Memory that CUDA allocated is registered already, in its way.
  if (region && region->kind != RegionKind::kRegistered) return CUDA_ERROR_INVALID_VALUE;
  return Memory::Instance().Register(*context, reinterpret_cast<uint64_t>(pointer), size_bytes,
                                     flags);
}

CUresult cuMemHostRegister(void* pointer, size_t size_bytes, unsigned flags) {
  return cuMemHostRegister_v2(pointer, size_bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto begin = reinterpret_cast<uint64_t>(pointer);
  const auto region = AddressTable::Instance().FindRegion(begin);
  if (begin == 0 ||
      (region && (region->kind != RegionKind::kRegistered || region->begin != begin))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The program may free the pages as soon as this returns.
  SynchronizeDevice(context->device);
  return Memory::Instance().Unregister(reinterpret_cast<uint64_t>(pointer));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_pointer, void* pointer, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (device_pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  const auto region = AddressTable::Instance().FindRegion(address);
  if (!region || !IsHostKind(region->kind)) return CUDA_ERROR_INVALID_VALUE;
  *device_pointer = address;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto region = AddressTable::Instance().FindRegion(reinterpret_cast<uint64_t>(pointer));
  if (!region || region->kind != RegionKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  // All host memory is mapped under unified addressing, whether or not that was requested.
  *flags = region->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* size_bytes, CUdeviceptr pointer) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto region = AddressTable::Instance().FindRegion(pointer);
  // Memory without access counts as none.
  if (!region || region->access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = region->begin;
  if (size_bytes != nullptr) *size_bytes = region->asked_bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
