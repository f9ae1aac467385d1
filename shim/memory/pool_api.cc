// SPDX-License-Identifier: Apache-2.0
// Memory in stream order: cuMemAllocAsync, cuMemFreeAsync, cuMemPool*. The pools are ours (pool.h);
// the executor sees only their chunks.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/wire/handles.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/memory.h"
#include "shim/memory/pool.h"
#include "shim/memory/shared_pool.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// `pool`: null if the program's handle was not one. Nothing is sent to the executor unless the pool
// needs another chunk: the stream's later work may use the address at once.
CUresult AllocateFrom(Pool* pool, CUdeviceptr* address, size_t size_bytes, CUstream handle,
                      DefaultStream null_means) {
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (address == nullptr || pool == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  CUresult captured;
  // In a capture the allocation becomes a node, whose address is known now and has memory when the
  // graph runs.
  if (Records(stream, &captured, [&](graph::NodeParams* node) {
        // A graph's memory is not shared with other processes.
        if (pool->handles != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
        const CUresult made = graph::MakeStreamAllocation(RefOf(stream), size_bytes, node);
        if (made == CUDA_SUCCESS) *address = node->alloc.params.dptr;
        return made;
      })) {
    return captured;
  }
  uint64_t begin = 0;
  uint32_t piece = 0;
  CUDA_RETURN_IF_ERROR(TakeFromPool(pool, size_bytes, stream, &begin, &piece));
  if (!NoteMemory({begin, size_bytes, MemoryKind::kPooled, 0, {}, piece, 0})) {
    // What the stream did with the piece before may not be done.
    GiveToPool(piece, stream, session.LastTicket(stream));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult Allocate(CUdeviceptr* address, size_t size_bytes, CUstream handle,
                  DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return AllocateFrom(CurrentPool(), address, size_bytes, handle, null_means);
}

CUresult AllocateFromPool(CUdeviceptr* address, size_t size_bytes, CUmemoryPool pool,
                          CUstream handle, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return AllocateFrom(FindPool(pool), address, size_bytes, handle, null_means);
}

// Up to which ticket of the stream memory may be used that is freed there now. A non-blocking
// stream's own work is all; a blocking stream is also ordered after work queued in other streams,
// so a mark tells where that ends.
CUresult TicketOfFreeing(wire::StreamId stream, wire::Ticket* ticket) {
  *ticket = session.LastTicket(stream);
  if (!BlocksLegacy(stream)) return CUDA_SUCCESS;
  return MarkStream(stream, ticket);
}

CUresult Free(CUdeviceptr address, CUstream handle, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (address == 0) return CUDA_SUCCESS;
  CUresult result;
  if (Records(stream, &result,
              [&](graph::NodeParams* node) { return graph::MakeFree(address, node); })) {
    return result;
  }
  // Memory that a graph has left allocated is freed like any other.
  if (graph::FreesGraphMemory(address, &result)) return result;
  // Forgotten before anything is sent: of two threads that free one address, one succeeds. Memory
  // of cuMemAlloc may be freed in stream order, too; then it is reused after the stream's work
  // instead of all streams'.
  KnownMemory freed;
  const bool pooled = ForgetMemory(address, MemoryKind::kPooled, &freed);
  if (!pooled) {
    if (!ForgetMemory(address, MemoryKind::kDevice, &freed)) return CUDA_ERROR_INVALID_VALUE;
    ForgetContextObject(ContextObjectKind::kDeviceMemory, address);
  }
  wire::Ticket ticket{0};
  CUDA_RETURN_IF_ERROR(TicketOfFreeing(stream, &ticket));
  if (pooled) {
    GiveToPool(freed.object, stream, ticket);
  } else {
    GiveDeviceMemory(address, freed.size_bytes, stream, ticket);
  }
  return CUDA_SUCCESS;
}

// Pools belong to the device, so their functions need no current context.
CUresult Need(CUmemoryPool handle, Pool** pool) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  *pool = FindPool(handle);
  return *pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// `pool`: null if there was no memory for it.
CUresult ReturnPool(CUmemoryPool* handle, Pool* pool) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

// Only pools of device memory are supported, and only of memory that does not move.
CUresult JudgeLocation(const CUmemLocation* location, CUmemAllocationType type) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return location->id == kOnlyDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// What the device's attributes deny (pools of host memory) is NOT_SUPPORTED; what CUDA does not
// know is INVALID_VALUE.
CUresult JudgeProperties(const CUmemPoolProps& wanted) {
  if (wanted.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  // As the real driver: later versions may give these a meaning.
  for (const unsigned char byte : wanted.reserved) {
    if (byte != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  switch (wanted.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (wanted.location.id != kOnlyDevice) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  switch (unsigned{wanted.handleTypes}) {
    case CU_MEM_HANDLE_TYPE_NONE:
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
    // As the real driver where there is no fabric: such a pool is made, and cannot be exported.
    case CU_MEM_HANDLE_TYPE_FABRIC:
    case CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream stream,
                              DefaultStream null_means) {
  return Allocate(address, size, stream, null_means);
}
CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size, CUmemoryPool pool,
                                      CUstream stream, DefaultStream null_means) {
  return AllocateFromPool(address, size, pool, stream, null_means);
}
CUresult api::cuMemFreeAsync(CUdeviceptr address, CUstream stream, DefaultStream null_means) {
  return Free(address, stream, null_means);
}

extern "C" {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* handle, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return ReturnPool(handle, DefaultPool());
}
CUresult cuDeviceGetMemPool(CUmemoryPool* handle, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return ReturnPool(handle, CurrentPool());
}
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  // Its memory is the exporter's to hand out.
  if (pool->imported) return CUDA_ERROR_INVALID_VALUE;
  SetCurrentPool(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* handle, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUDA_RETURN_IF_ERROR(JudgeLocation(location, type));
  return ReturnPool(handle, DefaultPool());
}
CUresult cuMemGetMemPool(CUmemoryPool* handle, CUmemLocation* location, CUmemAllocationType type) {
  CUDA_RETURN_IF_ERROR(JudgeLocation(location, type));
  return ReturnPool(handle, CurrentPool());
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  CUDA_RETURN_IF_ERROR(JudgeLocation(location, type));
  return cuDeviceSetMemPool(location->id, handle);
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* wanted) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (handle == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(JudgeProperties(*wanted));
  Pool* pool = nullptr;
  const CUresult result = MakePool(wanted->maxSize, wanted->handleTypes, &pool);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmemoryPool>(pool);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  return DestroyPool(pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (pool->imported) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(pool, keep_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (value == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  return GetPoolAttribute(pool, attribute, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (value == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  return SetPoolAttribute(pool, attribute, value);
}

// The device always reaches its own pools' memory, and there is no other.
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptors, size_t count) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (descriptors == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& one = descriptors[i];
    if (one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        one.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (one.location.type != CU_MEM_LOCATION_TYPE_DEVICE || one.location.id != kOnlyDevice) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    // A pool's own device cannot lose its access.
    if (one.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      location->id != kOnlyDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool handle,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // There is no fabric.
  if ((pool->handles & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && (pool->handles & type) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  return ExportPool(pool, static_cast<int*>(shareable));
}

// CUDA passes a descriptor's number in the pointer itself.
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pool* pool = nullptr;
  const CUresult result =
      ImportPool(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), &pool);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmemoryPool>(pool);
  return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  return data == nullptr ? CUDA_ERROR_INVALID_VALUE : ExportPointer(address, data);
}

CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool handle,
                                CUmemPoolPtrExportData* data) {
  Pool* pool;
  CUDA_RETURN_IF_ERROR(Need(handle, &pool));
  if (address == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ImportPointer(pool, *data, address);
}

}  // extern "C"
