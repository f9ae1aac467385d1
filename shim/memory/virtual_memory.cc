// SPDX-License-Identifier: Apache-2.0
// CUDA's virtual memory functions: cuMemCreate, cuMemAddressReserve, cuMemMap and their relatives.
// None of them needs a context.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/memory/address_space.h"
#include "shim/memory/memory.h"
#include "shim/memory/physical_memory.h"
#include "shim/memory/pool.h"
#include "shim/session/session.h"
#include "shim/session/shared_descriptor.h"

namespace gpuloom {
namespace {

// The quota's unit, in which the scheduler creates memory, is also that of mappings.
bool IsGranular(uint64_t number) { return number % kGranuleBytes == 0; }

bool IsAccess(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

bool IsOurDevice(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == kOnlyDevice;
}

CUresult JudgeProperties(const CUmemAllocationProp& wanted) {
  if (wanted.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (wanted.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (wanted.location.id != kOnlyDevice) return CUDA_ERROR_INVALID_DEVICE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;  // as the device's attributes say
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  // As the real driver where there is no fabric.
  if ((wanted.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if ((wanted.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Compression is only a hint; the others would be promises.
  return wanted.allocFlags.gpuDirectRDMACapable != 0 || wanted.allocFlags.usage != 0
             ? CUDA_ERROR_NOT_SUPPORTED
             : CUDA_SUCCESS;
}

// Returns with the lock released, for callers that make room and try again: MakeRoom must not be
// called under it (migration.h).
CUresult Create(uint64_t size_bytes, uint32_t handle_types, CUmemGenericAllocationHandle* handle) {
  PhysicalMemory* memory = nullptr;
  {
    Holding holding(&physical_lock);
    CUDA_RETURN_IF_ERROR(CreatePhysicalLocked(size_bytes, handle_types, &memory));
  }
  // Written outside of the lock: the program's memory may be managed and away, and the page fault
  // then waits for migration.cc's lock, whose holder may be waiting for this one.
  *handle = HandleOf(memory);
  return CUDA_SUCCESS;
}

// All of it is judged before anything is unmapped: half of a range would be worse than an error.
CUresult UnmapLocked(uint64_t address, uint64_t size_bytes) GPULOOM_REQUIRES(physical_lock) {
  const uint64_t end = address + size_bytes;
  uint64_t reserved, reserved_bytes;
  if (size_bytes == 0 || !IsGranular(size_bytes) || !IsGranular(address) ||
      !FindReservation(address, size_bytes, &reserved, &reserved_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Only whole mappings can be unmapped, but there may be holes between them.
  KnownMemory known;
  if (FindKnown(address, &known) && known.begin != address) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = address; FindKnownFrom(at, &known) && known.begin < end;
       at = known.begin + known.size_bytes) {
    if (known.size_bytes > end - known.begin) return CUDA_ERROR_INVALID_VALUE;
  }
  for (uint64_t at = address; FindKnownFrom(at, &known) && known.begin < end;
       at = known.begin + known.size_bytes) {
    CUDA_RETURN_IF_ERROR(UnmapPhysicalLocked(known.begin));
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* wanted,
                                       CUmemAllocationGranularity_flags option) {
  CUDA_RETURN_IF_ERROR(session.Check());
  if (granularity == nullptr || wanted == nullptr ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
       option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The same for both options and all properties.
  *granularity = kGranuleBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp* wanted, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (handle == nullptr || wanted == nullptr || flags != 0 || size_bytes == 0 ||
      !IsGranular(size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_RETURN_IF_ERROR(JudgeProperties(*wanted));
  // As cuMemAlloc: unused memory of the program's pools makes room, except for a size that the
  // device never has.
  const CUresult result = Create(size_bytes, wanted->requestedHandleTypes, handle);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || size_bytes > session.device().total_memory_bytes ||
      !MakeRoom(size_bytes)) {
    return result;
  }
  return Create(size_bytes, wanted->requestedHandleTypes, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  Holding holding(&physical_lock);
  PhysicalMemory* memory = FindPhysicalLocked(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --memory->handles;
  return ReleaseIfUnheldLocked(memory);
}

// Another handle to what is mapped at the pointer, even if the program has released all others: the
// mapping has held it.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  PhysicalMemory* memory;
  {
    Holding holding(&physical_lock);
    KnownMemory known;
    if (handle == nullptr || !FindKnown(reinterpret_cast<uint64_t>(pointer), &known) ||
        known.kind != MemoryKind::kMapped) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    memory = PhysicalAtLocked(known.object);
    ++memory->handles;
  }
  *handle = HandleOf(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  uint32_t handle_types;
  {
    Holding holding(&physical_lock);
    const PhysicalMemory* memory = FindPhysicalLocked(handle);
    if (properties == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    handle_types = memory->handle_types;
  }
  // Outside of the lock, too.
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, kOnlyDevice};
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  wire::PhysicalExport::Reply reply;
  {
    Holding holding(&physical_lock);
    const PhysicalMemory* memory = FindPhysicalLocked(handle);
    if (shareable == nullptr || memory == nullptr || flags != 0 ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (memory->handle_types & type) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_RETURN_IF_ERROR(
        session.Call<wire::PhysicalExport>({wire::PhysicalId{IdOfPhysicalLocked(memory)}}, &reply));
  }
  // What the program gets is no memory, only its name: see shared_descriptor.h.
  return MakeDescriptor(DescriptorKind::kMemory, reply.token, static_cast<int*>(shareable));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::Token token;
  // CUDA passes the descriptor's number in the pointer itself.
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  CUDA_RETURN_IF_ERROR(ReadDescriptor(DescriptorKind::kMemory, fd, &token));
  PhysicalMemory* memory = nullptr;
  CUresult result;
  {
    Holding holding(&physical_lock);
    result = ImportPhysicalLocked(token, &memory);
  }
  if (result == CUDA_SUCCESS) *handle = HandleOf(memory);
  // It belongs to another trust domain, or no session holds it any more.
  return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_UNKNOWN : result;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size_bytes, size_t alignment_bytes,
                             CUdeviceptr wanted, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (pointer == nullptr || flags != 0 || size_bytes == 0 || !IsGranular(size_bytes) ||
      !IsGranular(wanted) || (alignment_bytes & (alignment_bytes - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t begin = 0;
  const CUresult result = ReserveAddresses(size_bytes, alignment_bytes, wanted, &begin);
  if (result == CUDA_SUCCESS) *pointer = begin;
  return result;
}

// The lock keeps mappings from coming between the look and the free, and none is on its way.
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size_bytes) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  Holding holding(&physical_lock);
  const ChangingRange range(pointer, size_bytes);
  KnownMemory known;
  if (!IsReserved(pointer, size_bytes) ||
      (FindKnownFrom(pointer, &known) && known.begin - pointer < size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FreeAddresses(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size_bytes, size_t offset_bytes,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (size_bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Holding holding(&physical_lock);
  const ChangingRange range(pointer, size_bytes);
  PhysicalMemory* memory = FindPhysicalLocked(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t reserved, reserved_bytes;
  // The real driver maps only whole memory, and returns this error.
  if (offset_bytes != 0 || size_bytes != memory->size_bytes) return CUDA_ERROR_NOT_SUPPORTED;
  if (!IsGranular(pointer) || !FindReservation(pointer, 1, &reserved, &reserved_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Here a mapping also ends within its reservation.
  if (!FindReservation(pointer, size_bytes, &reserved, &reserved_bytes)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  KnownMemory known;
  if (FindKnown(pointer, &known) ||
      (FindKnownFrom(pointer, &known) && known.begin - pointer < size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return MapPhysicalLocked(memory, pointer);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size_bytes) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  Holding holding(&physical_lock);
  const ChangingRange range(pointer, size_bytes);
  return UnmapLocked(pointer, size_bytes);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size_bytes, const CUmemAccessDesc* descriptors,
                        size_t count) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (descriptors == nullptr || count == 0 || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemLocationType type = descriptors[i].location.type;
    if (!IsAccess(descriptors[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!IsOurDevice(descriptors[i].location)) return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t reserved, reserved_bytes;
  if (!FindReservation(pointer, size_bytes, &reserved, &reserved_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Holding holding(&physical_lock);
  const ChangingRange range(pointer, size_bytes);
  // All descriptors name the one device: the last one counts.
  return SetAccessLocked(pointer, size_bytes, descriptors[count - 1].flags);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(session.Check());
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsOurDevice(*location)) return CUDA_ERROR_INVALID_DEVICE;
  KnownMemory known;
  if (!FindKnown(pointer, &known) || known.kind != MemoryKind::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = known.flags;
  return CUDA_SUCCESS;
}

}  // extern "C"
