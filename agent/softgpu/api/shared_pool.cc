// SPDX-License-Identifier: Apache-2.0
// cuMemPoolExport*, cuMemPoolImport*: pools that processes share.
#include <memory>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/physical_memory.h"
#include "agent/softgpu/driver/pool.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/mutex.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

bool IsDescriptor(CUmemAllocationHandleType type, unsigned long long flags) {
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0;
}

}  // namespace

extern "C" {

CUresult cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool handle,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  const auto pool = FindPool(handle);
  if (shareable == nullptr || pool == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // There is no fabric.
  if ((pool->handles & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && (pool->handles & type) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  // Only the creator of an imported pool may export it.
  if (!IsDescriptor(type, flags) || pool->file == nullptr || pool->imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = pool->file->Export();
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(shareable) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (handle == nullptr || !IsDescriptor(type, flags)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  auto file = PoolFile::Import(fd, device);
  if (file == nullptr) {
    // Determines what is wrong with the descriptor: it is physical memory (NOT_SUPPORTED), or anything else (UNKNOWN).
    std::shared_ptr<Physical> memory;
    return ImportPhysical(fd, memory) == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_UNKNOWN;
  }
  *handle = reinterpret_cast<CUmemoryPool>(OpenPool(*device, std::move(file)).get());
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(Healthy());
  // The exact address of an allocation that this process has made and not freed, from a pool whose
  // descriptor is out: nobody else could name a part of a file that nobody has.
  const auto region = AddressTable::Instance().FindRegion(pointer);
  if (data == nullptr || !region || region->begin != pointer || region->leaving ||
      region->piece == nullptr || !region->piece->ours || !region->piece->file->exported()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  region->piece->file->Name(*region->piece, region->asked_bytes, *data);
  return CUDA_SUCCESS;
}

// Needs no current context, as pools do not: it goes with the device's primary one. Imported again it
// has the same address, and is freed once.
CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle,
                                CUmemPoolPtrExportData* data) {
  CUDA_RETURN_IF_ERROR(Healthy());
  const auto pool = FindPool(handle);
  if (pointer == nullptr || data == nullptr || pool == nullptr || !pool->imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t size_bytes = 0;
  auto piece = pool->file->Find(*data, size_bytes);
  if (piece == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Held over the look-up and the mapping, so that two threads that import the same allocation get
  // one address.
  const gpuloom::MutexLock lock(pool->mutex);
  if (const auto known = FindImported(*pool, piece->offset_bytes)) {
    // A larger allocation at this address was made there after its maker freed the one that this
    // process still has.
    if (size_bytes > known->asked_bytes) return CUDA_ERROR_INVALID_VALUE;
    *pointer = known->begin;
    return CUDA_SUCCESS;
  }
  // The piece is moved into the region; its place is still needed for the table.
  const uint64_t offset_bytes = piece->offset_bytes;
  uint64_t begin = 0;
  const CUresult mapped =
      Memory::Instance().Allocate(*pool->device.primary, RegionKind::kDevice, size_bytes, 0, begin,
                                  std::make_shared<PoolShare>(pool, size_bytes), piece);
  if (mapped == CUDA_SUCCESS) *pointer = pool->mapped[offset_bytes] = begin;
  return mapped;
}

}  // extern "C"
