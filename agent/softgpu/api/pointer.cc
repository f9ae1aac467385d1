// SPDX-License-Identifier: Apache-2.0
// cuPointer*: what is known about an address.
#include <cstddef>
#include <cstring>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/physical_memory.h"
#include "agent/softgpu/driver/pool.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/state.h"
#include "agent/softgpu/driver/virtual_memory.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Writes one answer, in the type that CUDA documents for the attribute.
template <typename T>
CUresult Put(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

bool IsHostMemory(const Region& region) { return !region.on_device(); }

CUcontext OwnerOf(const Region& region) {
  if (region.context != nullptr) return region.context->handle();
  return nullptr;  // cuMemMap belongs to no context
}

// For mapped memory the range is the reservation.
std::pair<uint64_t, uint64_t> RangeOf(const Region& region) {
  uint64_t begin = region.begin;
  uint64_t size_bytes = region.asked_bytes;
  if (region.kind == RegionKind::kMapped) {
    static_cast<void>(VirtualMemory::Instance().FindReservation(region.begin, begin, size_bytes));
  }
  return {begin, size_bytes};
}

CUresult Answer(CUpointer_attribute attribute, void* data, uint64_t address, const Region& region) {
  const bool on_host = IsHostMemory(region);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(data, OwnerOf(region));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put(data, on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      // Memory without access has an address, but none that the device could use.
      if (region.access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
      return Put(data, CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      // The host reaches all memory here, but is given pointers only to what CUDA lets it reach.
      if (!on_host && region.kind != RegionKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return Put(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Put(data, region.synchronous ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put(data, static_cast<unsigned long long>(region.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Put(data, region.kind == RegionKind::kManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      // Host memory belongs to the device whose context allocated it, mapped host memory to none.
      const Device* device = region.on_device()          ? region.device
                             : region.context != nullptr ? &region.context->device
                                                         : nullptr;
      return Put(data, device == nullptr ? -1 : device->ordinal);
    }
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Put(data, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Put(data, CUdeviceptr{RangeOf(region).first});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Put(data, size_t{RangeOf(region).second});
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Put(data, CUdeviceptr{region.begin});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Put(data, size_t{region.asked_bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      // If a pool owns it, the pool's handle types count.
      if (region.share != nullptr) return Put(data, uint64_t{region.share->pool->handles});
      return Put(data, region.physical == nullptr
                           ? 0ull
                           : static_cast<unsigned long long>(
                                 region.physical->properties.requestedHandleTypes));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put(data, region.access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put(data, region.share == nullptr
                           ? CUmemoryPool{nullptr}
                           : reinterpret_cast<CUmemoryPool>(region.share->pool.get()));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The values that cuPointerGetAttributes writes for an address that CUDA does not know.
void Clear(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      static_cast<void>(Put(data, 0u));
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      static_cast<void>(Put(data, -2));  // as the real driver says for memory it does not know
      return;
    default:
      static_cast<void>(Put(data, uint64_t{0}));
  }
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto region = AddressTable::Instance().FindRegion(pointer);
  // Unlike the plural form, this one reports that the address is unknown.
  return region ? Answer(attribute, data, pointer, *region) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto region = AddressTable::Instance().FindRegion(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || attributes[i] <= 0 ||
        attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!region || Answer(attributes[i], data[i], pointer, *region) != CUDA_SUCCESS) {
      Clear(attributes[i], data[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) {
  CUDA_RETURN_IF_ERROR(Ready());
  // Synchronous copies always finish before they return, so only fills look at this.
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned on = 0;
  std::memcpy(&on, value, sizeof(on));
  return AddressTable::Instance().SetSynchronous(pointer, on != 0) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
