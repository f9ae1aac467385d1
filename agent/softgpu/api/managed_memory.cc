// SPDX-License-Identifier: Apache-2.0
// Managed memory, apart from its allocation. It never moves here, and host and devices reach the same pages: advice and
// prefetches are checked, stored and reported.
#include <memory>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/advice.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/managed_advice.h"
#include "proto/sync/mutex.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

bool IsLocation(const CUmemLocation& location) {
  return IsHostLocation(location) ||
         (location.type == CU_MEM_LOCATION_TYPE_DEVICE && FindDevice(location.id) != nullptr);
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
  const gpuloom::MutexLock lock(region.advice->mutex);
  return NoteAdvice(what, location, IsLocation(location), &region.advice->said);
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
  region.advice->said.prefetched = location;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream,
                                 DefaultStream null_means) {
  return Prefetch(pointer, size, LocationOfNumber(device), 0, stream, null_means);
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
  return Advise(pointer, size, advice, LocationOfNumber(device));
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
  const gpuloom::MutexLock lock(region.advice->mutex);
  return WriteRangeAttributes(data, data_bytes, attributes, count, region.advice->said);
}
CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr pointer, size_t size) {
  return cuMemRangeGetAttributes(&data, &data_bytes, &attribute, 1, pointer, size);
}

}  // extern "C"
