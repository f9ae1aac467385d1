// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/memory.h"

#include <limits.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/migration.h"
#include "shim/memory/pool.h"
#include "shim/memory/registered_memory.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// The table is private memory: what the executor would say of an address plays no part in what
// calls may name. Nothing is sent under its lock, and no other lock of ours is taken.
struct Memory {
  Lock lock;
  Growing<KnownMemory> known GPULOOM_GUARDED_BY(lock);  // sorted by address, disjoint
  uint64_t last_buffer_id GPULOOM_GUARDED_BY(lock) = 0;
};
constinit Memory memory;

// The alignment that rows of textures and 2-D copies need on every supported device.
constexpr size_t kPitchBytes = 512;

// A reset leaves these: modules are unloaded on their own, and mappings belong to the process.
bool BelongsToNoContext(const KnownMemory& entry) {
  return entry.kind == MemoryKind::kGlobal || entry.kind == MemoryKind::kMapped ||
         IsPartOfOther(entry);
}

// Only mapped memory can be without access, until cuMemSetAccess.
bool Accessible(const KnownMemory& entry) {
  return entry.kind != MemoryKind::kMapped || entry.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// FindAccessible without the lock. *found is the first entry; a range that extends beyond it must
// consist of mappings, each beginning where the one before it ends, as only these can be neighbors
// by the program's wish.
inline bool FindAccessibleLocked(uint64_t address, uint64_t size_bytes, KnownMemory* found)
    GPULOOM_REQUIRES(memory.lock) {
  size_t i = FindAtOrBefore(memory.known, address);
  if (i == memory.known.count()) return false;
  *found = memory.known[i];
  if (address - found->begin >= found->size_bytes || !Accessible(*found)) return false;
  uint64_t held = found->size_bytes - (address - found->begin);
  while (held < size_bytes) {
    const KnownMemory& last = memory.known[i];
    if (last.kind != MemoryKind::kMapped || ++i == memory.known.count()) return false;
    const KnownMemory& next = memory.known[i];
    if (next.kind != MemoryKind::kMapped || !Accessible(next) ||
        next.begin != last.begin + last.size_bytes) {
      return false;
    }
    held += next.size_bytes;
  }
  return true;
}

CUresult Allocate(CUdeviceptr* address, size_t size_bytes) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (address == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // Potentially unsafe while a stream captures, as CUDA calls it.
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  CUDA_RETURN_IF_ERROR(MakeDeviceMemory(size_bytes, address));
  NoteContextObject(ContextObjectKind::kDeviceMemory, *address);
  return CUDA_SUCCESS;
}

CUresult AllocateHost(void** address, size_t size_bytes, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (address == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes == 0) {  // nothing is nowhere
    *address = nullptr;
    return CUDA_SUCCESS;
  }
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  uint64_t begin;
  CUDA_RETURN_IF_ERROR(TakePinned(size_bytes, &begin));
  // With unified addressing all pinned memory is mapped.
  if (!NoteMemory({begin,
                   size_bytes,
                   MemoryKind::kPinnedHost,
                   flags | CU_MEMHOSTALLOC_DEVICEMAP,
                   {},
                   0,
                   0})) {
    GivePinned(begin);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<void*>(begin);
  NoteContextObject(ContextObjectKind::kHostMemory, begin);
  return CUDA_SUCCESS;
}

// What is kept here is free to the program, but in use to the executor: it goes back first.
CUresult GetInfo(wire::MemInfo::Reply* reply) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  ReturnKeptMemory();
  return session.Call<wire::MemInfo>({}, reply);
}

unsigned Saturated(uint64_t bytes) {
  return bytes > UINT_MAX ? UINT_MAX : static_cast<unsigned>(bytes);
}

}  // namespace

CUresult MakeDeviceMemory(uint64_t size_bytes, CUdeviceptr* address) {
  uint64_t begin = 0;
  CUresult result = TakeDeviceMemory(size_bytes, &begin);
  // A second try only where it can help: more than the device has would be refused, and counted,
  // twice.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && size_bytes <= session.device().total_memory_bytes) {
    // Memory freed in stream order becomes available once the streams have reached that point.
    CUDA_RETURN_IF_ERROR(session.WaitForAll());
    result = MakeRoom(size_bytes) ? TakeDeviceMemory(size_bytes, &begin) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) return result;
  if (!NoteMemory({begin, size_bytes, MemoryKind::kDevice, 0, {}, 0, 0})) {
    GiveDeviceMemory(begin, size_bytes, wire::kLegacyStream, wire::Ticket{0});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = begin;
  return CUDA_SUCCESS;
}

uint64_t NewBufferId() {
  Holding holding(&memory.lock);
  return ++memory.last_buffer_id;
}

// A place at the device is made outside of the lock, because that may be a round trip.
bool FindMemory(uint64_t address, uint64_t size_bytes, KnownMemory* found) {
  {
    Holding holding(&memory.lock);
    if (!FindAccessibleLocked(address, size_bytes, found)) return false;
  }
  return !IsMigrating(*found) || MapMigrating(found->begin);
}

bool FindAccessible(uint64_t address, uint64_t size_bytes, KnownMemory* found) {
  Holding holding(&memory.lock);
  return FindAccessibleLocked(address, size_bytes, found);
}

bool FindKnown(uint64_t address, KnownMemory* found) {
  Holding holding(&memory.lock);
  const KnownMemory* entry = FindRange(memory.known, address, 1);
  if (entry == nullptr) return false;
  *found = *entry;
  return true;
}

bool FindKnownFrom(uint64_t address, KnownMemory* found) {
  Holding holding(&memory.lock);
  size_t i = FindAtOrBefore(memory.known, address);
  if (i == memory.known.count()) {
    i = 0;
  } else if (memory.known[i].begin < address) {
    ++i;
  }
  if (i == memory.known.count()) return false;
  *found = memory.known[i];
  return true;
}

bool NoteMemory(const KnownMemory& entry) {
  Holding holding(&memory.lock);
  KnownMemory named = entry;
  named.buffer_id = ++memory.last_buffer_id;
  return InsertSorted(&memory.known, named);
}

bool ForgetMemory(uint64_t begin, MemoryKind kind, KnownMemory* forgotten) {
  Holding holding(&memory.lock);
  const size_t i = FindAtOrBefore(memory.known, begin);
  if (i == memory.known.count() || memory.known[i].begin != begin || memory.known[i].kind != kind) {
    return false;
  }
  if (forgotten != nullptr) *forgotten = memory.known[i];
  memory.known.Remove(i);
  return true;
}

void SetMemoryFlags(uint64_t begin, uint32_t flags) {
  Holding holding(&memory.lock);
  const size_t i = FindAtOrBefore(memory.known, begin);
  if (i != memory.known.count() && memory.known[i].begin == begin) memory.known[i].flags = flags;
}

// A variable may be asked for any number of times, by any thread; the first makes the entry.
bool NoteGlobal(wire::DevicePtr address, uint64_t size_bytes, wire::LibraryId library) {
  const auto begin = static_cast<uint64_t>(address);
  if (size_bytes == 0) return true;
  Holding holding(&memory.lock);
  if (FindRange(memory.known, begin, 1) != nullptr) return true;
  return InsertSorted(&memory.known, {begin, size_bytes, MemoryKind::kGlobal, 0, library, 0,
                                      ++memory.last_buffer_id});
}

void ForgetGlobals(wire::LibraryId library) {
  Holding holding(&memory.lock);
  for (size_t i = memory.known.count(); i-- > 0;) {
    const KnownMemory& entry = memory.known[i];
    if (entry.kind == MemoryKind::kGlobal && entry.library == library) memory.known.Remove(i);
  }
}

// One entry at a time, the last first, because giving memory back must not happen under the lock:
// it may be a round trip. Other threads must not use the context meanwhile.
void ReleaseAllMemory() {
  CloseAllShared();
  for (;;) {
    KnownMemory entry;
    {
      Holding holding(&memory.lock);
      size_t i = memory.known.count();
      while (i > 0 && BelongsToNoContext(memory.known[i - 1])) --i;
      if (i == 0) break;
      entry = memory.known[i - 1];
      memory.known.Remove(i - 1);
    }
    if (entry.kind == MemoryKind::kManaged) ForgetManaged(entry.begin);
    if (IsMigrating(entry)) {
      GiveMigrating(entry.begin);
    } else if (IsInArena(entry)) {
      GivePinned(entry.begin);
      // Pooled memory is missing here: it goes with its pools below.
    } else if (entry.kind == MemoryKind::kDevice) {
      GiveDeviceMemory(entry.begin, entry.size_bytes, wire::kLegacyStream, wire::Ticket{0});
    }
  }
  ForgetAllRegistered();
  ResetPools();
  ReturnKeptMemory();
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size_bytes) {
  return Allocate(address, size_bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width_bytes, size_t height,
                            unsigned element_bytes) {
  if (pitch == nullptr || width_bytes == 0 || height == 0 ||
      (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
      width_bytes > SIZE_MAX - kPitchBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t row = (width_bytes + kPitchBytes - 1) / kPitchBytes * kPitchBytes;
  size_t total;
  if (__builtin_mul_overflow(row, height, &total)) total = SIZE_MAX;  // is refused, and counted
  const CUresult result = Allocate(address, total);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

// Memory knows its context, so no current one is needed to free it. The entry goes first: of two
// threads that free one address, one succeeds. Then all of the program's work is waited for, as
// CUDA does; what is freed may be reused at once.
CUresult cuMemFree_v2(CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (address == 0) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  CUresult of_graph;
  if (graph::FreesGraphMemory(address, &of_graph)) return of_graph;
  KnownMemory freed;
  if (ForgetMemory(address, MemoryKind::kDevice, &freed)) {
    ForgetContextObject(ContextObjectKind::kDeviceMemory, address);
    const CUresult result = session.WaitForAll();
    GiveDeviceMemory(address, freed.size_bytes, wire::kLegacyStream, wire::Ticket{0});
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  if (ForgetMemory(address, MemoryKind::kPooled, &freed)) {
    const CUresult result = session.WaitForAll();
    GiveToPool(freed.object, wire::kLegacyStream, wire::Ticket{0});
    TrimAtSynchronisation();
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  // A variable's memory belongs to its module and cannot be freed.
  KnownMemory known;
  const bool variable = FindKnown(address, &known) && IsPartOfOther(known);
  if (!variable && ForgetMemory(address, MemoryKind::kManaged)) {
    ForgetContextObject(ContextObjectKind::kDeviceMemory, address);
    const CUresult result = session.WaitForAll();
    ForgetManaged(address);
    IsMigrating(known) ? GiveMigrating(address) : GivePinned(address);
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  // Memory that a reset freed is unknown here; the context's state still shows why.
  return NeedContext() == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                          : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  wire::MemInfo::Reply reply;
  CUDA_RETURN_IF_ERROR(GetInfo(&reply));
  if (free_bytes != nullptr) *free_bytes = reply.free_bytes;
  if (total_bytes != nullptr) *total_bytes = reply.total_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  wire::MemInfo::Reply reply;
  CUDA_RETURN_IF_ERROR(GetInfo(&reply));
  if (free_bytes != nullptr) *free_bytes = Saturated(reply.free_bytes);
  if (total_bytes != nullptr) *total_bytes = Saturated(reply.total_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory found;
  if (address == 0 || !FindAccessible(address, 1, &found)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found.begin;
  if (size != nullptr) *size = found.size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t size_bytes, unsigned flags) {
  return AllocateHost(address, size_bytes, flags);
}
CUresult cuMemAllocHost_v2(void** address, size_t size_bytes) {
  return AllocateHost(address, size_bytes, 0);
}
CUresult cuMemAllocHost(void** address, unsigned size_bytes) {
  return AllocateHost(address, size_bytes, 0);
}

CUresult cuMemFreeHost(void* address) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (address == nullptr) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  const auto begin = reinterpret_cast<uint64_t>(address);
  KnownMemory known;
  if ((FindKnown(begin, &known) && IsPartOfOther(known)) ||
      !ForgetMemory(begin, MemoryKind::kPinnedHost)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ForgetContextObject(ContextObjectKind::kHostMemory, begin);
  // Waits for copies and kernels that still use it, because the memory will be reused.
  const CUresult result = session.WaitForAll();
  GivePinned(begin);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* address, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory found;
  // Registered memory is in a table of its own; INVALID_VALUE says that it is not there.
  if (device != nullptr && flags == 0) {
    const CUresult result = MapRegistered(reinterpret_cast<uint64_t>(address), device);
    if (result != CUDA_ERROR_INVALID_VALUE) return result;
  }
  if (device == nullptr || flags != 0 ||
      !FindAccessible(reinterpret_cast<uint64_t>(address), 1, &found) ||
      found.kind != MemoryKind::kPinnedHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* address) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory found;
  RegisteredMemory registered;
  if (flags != nullptr && FindRegistered(reinterpret_cast<uint64_t>(address), &registered)) {
    *flags = registered.flags;
    return CUDA_SUCCESS;
  }
  if (flags == nullptr || !FindAccessible(reinterpret_cast<uint64_t>(address), 1, &found) ||
      found.kind != MemoryKind::kPinnedHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = found.flags;
  return CUDA_SUCCESS;
}

}  // extern "C"
