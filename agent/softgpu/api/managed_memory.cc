// SPDX-License-Identifier: Apache-2.0
// Managed memory, apart from its allocation. It never moves here, and host and devices reach the same pages: advice and
// prefetches are checked, stored and reported.
#include <cstring>
#include <memory>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/advice.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/mutex.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

bool IsHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}
bool IsLocation(const CUmemLocation& location) {
  return IsHost(location) ||
         (location.type == CU_MEM_LOCATION_TYPE_DEVICE && FindDevice(location.id) != nullptr);
}
// The old forms name a device, or the CPU by a number of its own; the new ones name a place.
CUmemLocation LocationOf(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, CU_DEVICE_CPU};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}
int DeviceOf(const CUmemLocation& location) {
  return IsHost(location) ? int{CU_DEVICE_CPU} : location.id;
}

// Managed memory only, and the range inside of one allocation.
CUresult Require(CUdeviceptr pointer, size_t size_bytes, Region& region) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  auto found = AddressTable::Instance().FindRegion(pointer);
  if (!found || found->kind != RegionKind::kManaged || size_bytes == 0 ||
      size_bytes > found->end() - pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  region = *found;
  return CUDA_SUCCESS;
}

CUresult RequireStream(CUstream handle, DefaultStream null_means, std::shared_ptr<Stream>& stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  stream = FindStream(*context, handle, null_means);
  return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Advise(CUdeviceptr pointer, size_t size_bytes, CUmem_advise what,
                const CUmemLocation& location) {
  Region region;
  CUDA_RETURN_IF_ERROR(Require(pointer, size_bytes, region));
  Advice& advice = *region.advice;
  const gpuloom::MutexLock lock(advice.mutex);
  switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      advice.read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      if (!IsLocation(location)) return CUDA_ERROR_INVALID_VALUE;
      advice.preferred = location;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      advice.preferred = kNowhere;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      // Advice for the host is judged like any other, and forgotten: it always has access.
      if (!IsLocation(location)) return CUDA_ERROR_INVALID_VALUE;
      if (!IsHost(location)) {
        advice.accessed_by =
            what == CU_MEM_ADVISE_SET_ACCESSED_BY ? location.id : int{CU_DEVICE_INVALID};
      }
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// A call that changes nothing still takes its place in the stream: waiting for it means waiting for what is before it.
void EnqueueNothing(Stream& stream) {
  Work work;
  work.run = [] {};
  stream.context.Enqueue(stream, std::move(work));
}

CUresult Prefetch(CUdeviceptr pointer, size_t size_bytes, const CUmemLocation& location,
                  unsigned flags, CUstream handle, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(RequireStream(handle, null_means, stream));
  Region region;
  CUDA_RETURN_IF_ERROR(Require(pointer, size_bytes, region));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!IsLocation(location)) return CUDA_ERROR_INVALID_DEVICE;
  CUDA_RETURN_IF_ERROR(RefuseInCapture(*stream));
  EnqueueNothing(*stream);
  const gpuloom::MutexLock lock(region.advice->mutex);
  region.advice->prefetched = location;
  return CUDA_SUCCESS;
}

CUresult WriteAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                        const Advice& advice) GPULOOM_REQUIRES(advice.mutex) {
  int value = 0;
  switch (attribute) {
    // As many devices as the buffer holds, the rest filled up. Only one can have been advised last.
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (data_bytes == 0 || data_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      int* devices = static_cast<int*>(data);
      for (size_t i = 0; i < data_bytes / sizeof(int); ++i) devices[i] = CU_DEVICE_INVALID;
      devices[0] = advice.accessed_by;
      return CUDA_SUCCESS;
    }
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = advice.read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = DeviceOf(advice.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = DeviceOf(advice.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = advice.preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = advice.prefetched.type;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  // All others are a single int.
  if (data_bytes != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream,
                                 DefaultStream null_means) {
  return Prefetch(pointer, size, LocationOf(device), 0, stream, null_means);
}
CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size, CUmemLocation location,
                                    unsigned flags, CUstream stream, DefaultStream null_means) {
  return Prefetch(pointer, size, location, flags, stream, null_means);
}

CUresult api::cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t size_bytes,
                                     unsigned flags, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(RequireStream(handle, null_means, stream));
  Region region;
  CUDA_RETURN_IF_ERROR(Require(pointer, 1, region));
  // The whole allocation, by its beginning: attaching a part is not possible.
  if (region.begin != pointer || (size_bytes != 0 && size_bytes != region.asked_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool known = flags == 0 || flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                     flags == CU_MEM_ATTACH_SINGLE;
  // Attached to one stream, but the default stream is not one that memory can be attached to.
  if (!known || (flags == CU_MEM_ATTACH_SINGLE && handle == nullptr &&
                 null_means == DefaultStream::kLegacy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_RETURN_IF_ERROR(RefuseInCapture(*stream));
  EnqueueNothing(*stream);
  return CUDA_SUCCESS;
}

extern "C" {

CUresult cuMemAdvise(CUdeviceptr pointer, size_t size, CUmem_advise advice, CUdevice device) {
  return Advise(pointer, size, advice, LocationOf(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t size, CUmem_advise advice,
                        CUmemLocation location) {
  return Advise(pointer, size, advice, location);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* data_bytes, CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr pointer, size_t size) {
  Region region;
  CUDA_RETURN_IF_ERROR(Require(pointer, size, region));
  if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // What nobody has said anything of has the defaults.
  Advice& advice = *region.advice;
  const gpuloom::MutexLock lock(advice.mutex);
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RETURN_IF_ERROR(WriteAttribute(data[i], data_bytes[i], attributes[i], advice));
  }
  return CUDA_SUCCESS;
}
CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr pointer, size_t size) {
  return cuMemRangeGetAttributes(&data, &data_bytes, &attribute, 1, pointer, size);
}

}  // extern "C"
