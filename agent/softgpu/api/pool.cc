// SPDX-License-Identifier: Apache-2.0
// cuMemAllocAsync, cuMemFreeAsync, cuMemPool*: memory in stream order.
#include "agent/softgpu/driver/pool.h"

#include <memory>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// The address is good at once; CUDA allows its use only behind this point of the stream, which is
// later.
CUresult Allocate(CUdeviceptr* pointer, size_t size_bytes, CUstream handle,
                  DefaultStream null_means, const CUmemoryPool* pool_handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto stream = FindStream(*context, handle, null_means);
  if (stream == nullptr) return NoStream(handle);
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto pool = pool_handle == nullptr ? CurrentPool(stream->context.device) : FindPool(*pool_handle);
  if (pool == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  // A size of 0 gives the null pointer, which may be freed.
  if (size_bytes == 0) {
    *pointer = 0;
    return CUDA_SUCCESS;
  }
  // In a capture the allocation becomes a node, whose memory lies in the graph's own.
  CUresult captured;
  if (Records(*stream, &captured, [&](gpuloom::graph::NodeParams* node) {
        // A graph's memory is not shared with other processes.
        if (pool->handles != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
        const CUresult made =
            gpuloom::graph::MakeStreamAllocation(RefOf(*stream), size_bytes, node);
        if (made == CUDA_SUCCESS) *pointer = node->alloc.params.dptr;
        return made;
      })) {
    return captured;
  }
  uint64_t begin = 0;
  // A pool that processes share cuts its file; any other gets pages of its own.
  std::shared_ptr<FilePiece> piece;
  if (pool->file != nullptr && (piece = pool->file->Take(size_bytes)) == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult allocated = Memory::Instance().Allocate(
      stream->context.Owner(), RegionKind::kDevice, size_bytes, 0, begin,
      std::make_shared<PoolShare>(std::move(pool), size_bytes), piece);
  if (allocated == CUDA_SUCCESS) *pointer = begin;
  return allocated;
}

CUresult Require(CUmemoryPool handle, std::shared_ptr<MemoryPool>& pool) {
  CUDA_RETURN_IF_ERROR(Healthy());
  pool = FindPool(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Require(CUdevice ordinal, Device*& device) {
  CUDA_RETURN_IF_ERROR(Healthy());
  device = FindDevice(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemAllocAsync(CUdeviceptr* pointer, size_t size_bytes, CUstream stream,
                              DefaultStream null_means) {
  return Allocate(pointer, size_bytes, stream, null_means, nullptr);
}
CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t size_bytes, CUmemoryPool pool,
                                      CUstream stream, DefaultStream null_means) {
  return Allocate(pointer, size_bytes, stream, null_means, &pool);
}

// Goes back in stream order; `even_after_fault`, because the pool's count would never come down
// otherwise.
CUresult api::cuMemFreeAsync(CUdeviceptr pointer, CUstream handle, DefaultStream null_means) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto stream = FindStream(*context, handle, null_means);
  if (stream == nullptr) return NoStream(handle);
  if (pointer == 0) return CUDA_SUCCESS;
  CUresult done;
  if (Records(*stream, &done, [&](gpuloom::graph::NodeParams* node) {
        return gpuloom::graph::MakeFree(pointer, node);
      })) {
    return done;
  }
  // An address that a graph's node has given is freed in the graph's way.
  if (gpuloom::graph::FreesGraphMemory(pointer, &done)) return done;
  // Freed as of now, for the program: a second call must fail, though the memory stays until the
  // stream comes by.
  if (!AddressTable::Instance().SetLeaving(pointer)) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.even_after_fault = true;
  work.run = [pointer] {
    static_cast<void>(Memory::Instance().Free(pointer, RegionKind::kDevice));
  };
  stream->context.Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

extern "C" {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemoryPool>(DefaultPool(*device).get());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemoryPool>(CurrentPool(*device).get());
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  // A pool of another device cannot be the one that a device allocates from; nor one that was
  // imported, which nobody allocates from here.
  if (&pool->device != device || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  SetCurrentPool(*device, std::move(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (handle == nullptr || properties == nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Pools in host memory are not offered.
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const bool shareable = properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  Device* device = FindDevice(properties->location.id);
  // As the real driver where there is no fabric: such a pool is made, and cannot be exported.
  const unsigned others = properties->handleTypes &
                          ~(CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (device == nullptr || others != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto pool = std::make_shared<MemoryPool>(*device);
  pool->handles = properties->handleTypes;
  // The file is as large as the pool will ever be, and sparse.
  if (shareable && (pool->file = PoolFile::Make(*device)) == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUmemoryPool>(pool.get());
  Registry<MemoryPool>::Instance().Add(std::move(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  const CUresult healthy = Healthy();
  return healthy != CUDA_SUCCESS ? healthy : DestroyPool(handle);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  if (value == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  return GetAttribute(*pool, attribute, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  if (value == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  return SetAttribute(*pool, attribute, value);
}

// A pool keeps nothing back, so there is nothing to trim.
CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  return pool->imported ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All devices of one process reach all of its memory.
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptors, size_t count) {
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  if (descriptors == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccess_flags flags = descriptors[i].flags;
    // The pool's own device reads and writes.
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
        (descriptors[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         FindDevice(descriptors[i].location.id) == nullptr)) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  std::shared_ptr<MemoryPool> pool;
  CUDA_RETURN_IF_ERROR(Require(handle, pool));
  if (flags == nullptr || location == nullptr ||
      (location->type == CU_MEM_LOCATION_TYPE_DEVICE && FindDevice(location->id) == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

}  // extern "C"
