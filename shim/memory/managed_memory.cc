// SPDX-License-Identifier: Apache-2.0
// Managed memory: where it migrates (migration.h), or a part of the host arena, which the device reaches at the same
// address and which never moves. There advice and prefetching only change what attributes report. A prefetch in a
// stream is ordered like other work: waiting for it also waits for what precedes it.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/managed_advice.h"
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
  ManagedAdvice said;
};

struct Managed {
  Lock lock;
  Growing<Advice> advice GPULOOM_GUARDED_BY(lock);  // of every allocation, sorted by address
};
constinit Managed managed;

// All of it in one managed allocation. Nothing is placed at the device for a question.
bool IsManaged(uint64_t address, uint64_t size_bytes) {
  KnownMemory found;
  return address != 0 && size_bytes != 0 && FindAccessible(address, size_bytes, &found) &&
         found.kind == MemoryKind::kManaged;
}

bool IsLocation(const CUmemLocation& location) {
  return IsHostLocation(location) ||
         (location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == kOnlyDevice);
}

// Keeps what was advised, for the attributes.
CUresult Note(uint64_t address, uint64_t size_bytes, CUmem_advise advice,
              const CUmemLocation& location) {
  Holding holding(&managed.lock);
  Advice* const known = FindRange(managed.advice, address, size_bytes);
  if (known == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return NoteAdvice(advice, location, IsLocation(location), &known->said);
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
  CUDA_RETURN_IF_ERROR(Note(address, size_bytes, advice, location));
  const bool sets = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  if (!IsMigrating(found) || !(sets || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)) {
    return CUDA_SUCCESS;
  }
  return PreferHost(found.begin, sets && IsHostLocation(location));
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
    if (Advice* known = FindRange(managed.advice, address, size_bytes); known != nullptr) {
      known->said.prefetched = location;
    }
  }
  // For memory in the arena this does nothing.
  CUDA_RETURN_IF_ERROR(PrefetchMigrating(address, size_bytes, !IsHostLocation(location)));
  return MarkStream(stream);
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
  const Advice* const known = FindRange(managed.advice, address, size_bytes);
  if (known == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WriteRangeAttributes(data, data_bytes, attributes, count, known->said);
}

// Host and device may always reach what is in the arena, so that attaching that to a stream changes nothing. Variables
// that migrate do so with all others of their library, which other streams may use.
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
  if (IsMigrating(found) && !IsPartOfOther(found)) AttachMigrating(found.begin, flags, stream);
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
  const uint32_t object = kBelongsToOther | (MayMigrate(begin) ? kMigrates : 0);
  {
    Holding holding(&managed.lock);
    if (!InsertSorted(&managed.advice, {begin, size_bytes, {}})) {
      return false;
    }
  }
  if (NoteMemory({begin, size_bytes, MemoryKind::kManaged, CU_MEM_ATTACH_GLOBAL, {}, object, 0})) {
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

bool AnyManagedInHostMemory() {
  if (AnyMigratingInHostMemory()) return true;
  Holding holding(&managed.lock);
  for (const Advice& allocation : managed.advice) {
    if (!MayMigrate(allocation.begin)) return true;
  }
  return false;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream,
                                 DefaultStream null_means) {
  return Prefetch(address, size, LocationOfNumber(device), 0, stream, null_means);
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
  const bool migrates =
      size_bytes >= kLeastMigratingBytes &&
      TakeMigrating(size_bytes, flags, MigratingFor::kProgram, &begin) == CUDA_SUCCESS;
  if (!migrates) CUDA_RETURN_IF_ERROR(TakePinned(size_bytes, &begin));
  bool noted;
  {
    Holding holding(&managed.lock);
    noted = InsertSorted(&managed.advice, {begin, size_bytes, {}});
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
  return Advise(address, size, advice, LocationOfNumber(device));
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
