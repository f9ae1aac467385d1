// SPDX-License-Identifier: Apache-2.0
// Managed memory: where it migrates (migration.h), or a part of the host arena, which the device reaches at the same
// address and which never moves. There advice and prefetching only change what attributes report. A prefetch in a
// stream is ordered like other work: waiting for it also waits for what precedes it.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// Advice about an allocation; always for all of it.
struct Advice {
  uint64_t begin;
  uint64_t size_bytes;
  bool read_mostly;
  bool accessed_by_device;
  CUmemLocation preferred;
  CUmemLocation prefetched;
};

struct Managed {
  Lock lock;
  Growing<Advice> advice GPULOOM_GUARDED_BY(lock);  // of every allocation, sorted by address
};
constinit Managed managed;

// What attributes report where nothing has been advised or prefetched.
constexpr CUmemLocation kNowhere = {CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};

// All of it in one managed allocation. Nothing is placed at the device for a question.
bool IsManaged(uint64_t address, uint64_t size_bytes) {
  KnownMemory found;
  return address != 0 && size_bytes != 0 && FindAccessible(address, size_bytes, &found) &&
         found.kind == MemoryKind::kManaged;
}

// There is one kind of host memory: NUMA nodes are not told apart.
bool IsHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

bool IsLocation(const CUmemLocation& location) {
  return IsHost(location) ||
         (location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == kOnlyDevice);
}

// The older functions name a device by its number alone.
CUmemLocation LocationOf(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, CU_DEVICE_CPU};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// Keeps what was advised, for the attributes. INVALID_VALUE for what CUDA refuses.
CUresult NoteAdvice(uint64_t address, uint64_t size_bytes, CUmem_advise advice,
                    const CUmemLocation& location) {
  Holding holding(&managed.lock);
  Advice* said = FindRange(managed.advice, address, size_bytes);
  if (said == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      said->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      if (!IsLocation(location)) return CUDA_ERROR_INVALID_VALUE;
      said->preferred = location;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      said->preferred = kNowhere;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      if (!IsLocation(location)) return CUDA_ERROR_INVALID_VALUE;
      // The host always has access, so it is not noted.
      if (!IsHost(location)) said->accessed_by_device = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Only one advice changes anything: where it is to be. Pages that prefer the host stay there, and
// are mapped for the device.
CUresult Advise(uint64_t address, uint64_t size_bytes, CUmem_advise advice,
                const CUmemLocation& location) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory found;
  if (!IsManaged(address, size_bytes) || !FindKnown(address, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_RETURN_IF_ERROR(NoteAdvice(address, size_bytes, advice, location));
  const bool sets = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  if (!IsMigrating(found) || !(sets || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)) {
    return CUDA_SUCCESS;
  }
  return PreferHost(found.begin, sets && IsHost(location));
}

CUresult Prefetch(uint64_t address, uint64_t size_bytes, const CUmemLocation& location,
                  unsigned flags, CUstream handle, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (flags != 0 || !IsManaged(address, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!IsLocation(location)) return CUDA_ERROR_INVALID_DEVICE;
  CUDA_RETURN_IF_ERROR(RefuseInCapture(stream));
  {
    Holding holding(&managed.lock);
    // Noted even where nothing moves: attributes report it. The lock is not held during the
    // prefetch below, which waits for copies.
    if (Advice* said = FindRange(managed.advice, address, size_bytes); said != nullptr) {
      said->prefetched = location;
    }
  }
  // For memory in the arena this does nothing.
  CUDA_RETURN_IF_ERROR(PrefetchMigrating(address, size_bytes, !IsHost(location)));
  return MarkStream(stream);
}

// As the attributes have it: -1 for the host (CU_DEVICE_CPU), -2 for nowhere (CU_DEVICE_INVALID).
int DeviceOf(const CUmemLocation& location) {
  return IsHost(location) ? int{CU_DEVICE_CPU} : location.id;
}

// Writes one attribute. CUDA judges each by the size that the program says it has.
CUresult WriteAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                        const Advice& said) {
  const auto number = [&](int value) {
    if (data_bytes != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &value, sizeof(value));
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return number(said.read_mostly ? 1 : 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return number(DeviceOf(said.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return number(DeviceOf(said.prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return number(said.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return number(said.prefetched.type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return number(DeviceOf(said.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return number(DeviceOf(said.prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (data_bytes == 0 || data_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      // A list of devices, filled up with CU_DEVICE_INVALID; here it is at most one long.
      int* devices = static_cast<int*>(data);
      for (size_t i = 0; i < data_bytes / sizeof(int); ++i) devices[i] = CU_DEVICE_INVALID;
      if (said.accessed_by_device) devices[0] = kOnlyDevice;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult GetAttributes(void** data, const size_t* data_bytes,
                       const CUmem_range_attribute* attributes, size_t count, uint64_t address,
                       uint64_t size_bytes) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0 ||
      !IsManaged(address, size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Holding holding(&managed.lock);
  const Advice* said = FindRange(managed.advice, address, size_bytes);
  if (said == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RETURN_IF_ERROR(WriteAttribute(data[i], data_bytes[i], attributes[i], *said));
  }
  return CUDA_SUCCESS;
}

// Host and device may always reach what is in the arena, so that attaching that to a stream changes nothing.
CUresult Attach(CUstream handle, CUdeviceptr address, size_t size_bytes, unsigned flags,
                DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  KnownMemory found;
  if (!IsManaged(address, 1) || !FindAccessible(address, 1, &found) || found.begin != address ||
      (size_bytes != 0 && size_bytes != found.size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool known = flags == 0 || flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                     flags == CU_MEM_ATTACH_SINGLE;
  if (!known || (flags == CU_MEM_ATTACH_SINGLE && stream == wire::kLegacyStream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_RETURN_IF_ERROR(RefuseInCapture(stream));
  if (IsMigrating(found)) AttachMigrating(found.begin, flags, stream);
  // CUDA makes it an operation of the stream: whoever waits for the stream waits for it.
  return MarkStream(stream);
}

}  // namespace

void ForgetManaged(uint64_t begin) {
  Holding holding(&managed.lock);
  const size_t i = FindAtOrBefore(managed.advice, begin);
  if (i != managed.advice.count() && managed.advice[i].begin == begin) managed.advice.Remove(i);
}

// Asked for by name, any number of times. Both tables have it or neither.
bool NoteManagedVariable(uint64_t begin, uint64_t size_bytes) {
  KnownMemory known;
  if (size_bytes == 0 || FindKnown(begin, &known)) return true;
  {
    Holding holding(&managed.lock);
    if (!InsertSorted(&managed.advice, {begin, size_bytes, false, false, kNowhere, kNowhere})) {
      return false;
    }
  }
  if (NoteMemory({begin,
                  size_bytes,
                  MemoryKind::kManaged,
                  CU_MEM_ATTACH_GLOBAL,
                  {},
                  kBelongsToOther,
                  0})) {
    return true;
  }
  ForgetManaged(begin);
  return false;
}

void ForgetManagedVariables(uint64_t begin, uint64_t size_bytes) {
  KnownMemory found;
  while (FindKnownFrom(begin, &found) && found.begin - begin < size_bytes) {
    if (!ForgetMemory(found.begin, MemoryKind::kManaged)) return;
    ForgetManaged(found.begin);
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream,
                                 DefaultStream null_means) {
  return Prefetch(address, size, LocationOf(device), 0, stream, null_means);
}
CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location,
                                    unsigned flags, CUstream stream, DefaultStream null_means) {
  return Prefetch(address, size, location, flags, stream, null_means);
}

CUresult api::cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t size,
                                     unsigned flags, DefaultStream null_means) {
  return Attach(stream, address, size, flags, null_means);
}

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t size_bytes, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (address == nullptr || size_bytes == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  uint64_t begin;
  // Whatever keeps it from migrating, host memory serves as well: slower, and correct.
  const bool migrates = size_bytes >= kLeastMigratingBytes &&
                        TakeMigrating(size_bytes, flags, &begin) == CUDA_SUCCESS;
  if (!migrates) CUDA_RETURN_IF_ERROR(TakePinned(size_bytes, &begin));
  bool noted;
  {
    Holding holding(&managed.lock);
    noted = InsertSorted(&managed.advice, {begin, size_bytes, false, false, kNowhere, kNowhere});
  }
  const uint32_t object = migrates ? kMigrates : 0;
  if (!noted || !NoteMemory({begin, size_bytes, MemoryKind::kManaged, flags, {}, object, 0})) {
    ForgetManaged(begin);
    migrates ? GiveMigrating(begin) : GivePinned(begin);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  NoteContextObject(ContextObjectKind::kDeviceMemory, begin);
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
  return Advise(address, size, advice, LocationOf(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice,
                        CUmemLocation location) {
  return Advise(address, size, advice, location);
}

CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t size) {
  return GetAttributes(&data, &data_bytes, &attribute, 1, address, size);
}
CUresult cuMemRangeGetAttributes(void** data, size_t* data_bytes, CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr address, size_t size) {
  return GetAttributes(data, data_bytes, attributes, count, address, size);
}

}  // extern "C"
