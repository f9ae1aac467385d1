// SPDX-License-Identifier: Apache-2.0
// cuMemCreate, cuMemMap and their relatives: physical memory, address ranges, and the two put
// together. None of them needs a context, so a process without one can hold and hand out memory.
#include "agent/softgpu/driver/virtual_memory.h"

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/physical_memory.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// An enumeration, but any number may come in it.
bool ValidAccess(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity_bytes,
                                       const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (granularity_bytes == nullptr || properties == nullptr ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
       option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Both are 2 MiB: there are no larger pages that could be recommended.
  *granularity_bytes = kGranularityBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical;
  const CUresult made = MakePhysical(size_bytes, *properties, physical);
  if (made == CUDA_SUCCESS) *handle = AddHandle(physical);
  return made;
}

// Allowed after a fault, as everything that gives memory back: a program cleans up then.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  return ReleaseHandle(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  const auto physical = FindHandle(handle);
  if (properties == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = physical->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  CUDA_RETURN_IF_ERROR(Ready());
  // Any address inside a mapping will do. The handle counts up, so the program releases it once
  // more.
  const auto region = AddressTable::Instance().FindRegion(reinterpret_cast<uint64_t>(pointer));
  if (handle == nullptr || !region || region->physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = AddHandle(region->physical);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Ready());
  const auto physical = FindHandle(handle);
  if (shareable == nullptr || physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  return ExportPhysical(*physical, *static_cast<int*>(shareable));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical;
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  const CUresult imported = ImportPhysical(fd, physical);
  if (imported == CUDA_SUCCESS) *handle = AddHandle(physical);
  // A pool's descriptor is not wrong, it is for cuMemPoolImportFromShareableHandle. Only told apart
  // on failure.
  Device* device = nullptr;
  if (imported == CUDA_ERROR_UNKNOWN && PoolFile::Import(fd, device) != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return imported;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size_bytes, size_t alignment_bytes,
                             CUdeviceptr wanted, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t begin = 0;
  const CUresult reserved =
      VirtualMemory::Instance().Reserve(size_bytes, alignment_bytes, wanted, begin);
  if (reserved == CUDA_SUCCESS) *pointer = begin;
  return reserved;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size_bytes) {
  const CUresult ready = Ready();
  return ready != CUDA_SUCCESS ? ready : VirtualMemory::Instance().Free(pointer, size_bytes);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size_bytes, size_t offset_bytes,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  auto physical = FindHandle(handle);
  if (physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (offset_bytes != 0) return CUDA_ERROR_NOT_SUPPORTED;  // as the real driver
  // The handle may be released right after: the mapping holds the memory.
  return VirtualMemory::Instance().Map(pointer, size_bytes, std::move(physical));
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size_bytes) {
  const CUresult ready = Ready();
  return ready != CUDA_SUCCESS ? ready : VirtualMemory::Instance().Unmap(pointer, size_bytes);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size_bytes, const CUmemAccessDesc* descriptors,
                        size_t count) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (descriptors == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  // All devices see memory through this process's addresses, so the widest access requested is the
  // one that holds.
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemLocation& location = descriptors[i].location;
    // All are judged before anything changes: one that is wrong leaves the access of the range as
    // it was.
    if (!ValidAccess(descriptors[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && FindDevice(location.id) == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
    if (descriptors[i].flags > access) access = descriptors[i].flags;
  }
  return VirtualMemory::Instance().SetAccess(pointer, size_bytes, access);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(Ready());
  // A device that does not exist is reported before a wrong address.
  if (flags != nullptr && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
      FindDevice(location->id) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto region = AddressTable::Instance().FindRegion(pointer);
  if (flags == nullptr || location == nullptr || !region || region->physical == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = region->access;
  return CUDA_SUCCESS;
}

}  // extern "C"
