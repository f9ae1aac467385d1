// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/registered_memory.h"

#include <sys/mman.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/regions.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/process/growing.h"
#include "shim/process/process_map.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Registered {
  Lock lock;
  Growing<RegisteredMemory> ranges;  // sorted by address, disjoint
};
constinit Registered registered;

constexpr unsigned kKnownFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                 CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

// Returns true if the program itself may read every byte and, unless it promises only to read,
// write it. Without /proc the kernel only tells whether there is memory (an msync that waits for
// nothing does nothing else).
bool MayRegister(uint64_t address, uint64_t size_bytes, bool read_only) {
  const uint64_t end = address + size_bytes;
  ProcessMap map;
  if (!map.is_known()) {
    const uint64_t begin = address & ~(wire::kPageBytes - 1);
    return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
  }
  Mapped mapped;
  for (uint64_t at = address; at < end; at = mapped.end) {
    if (!map.Find(at, &mapped) || mapped.begin > at) return false;
    if (!mapped.readable || (!mapped.writable && !read_only)) return false;
  }
  return true;
}

bool OverlapsLocked(uint64_t begin, uint64_t size_bytes) {
  const size_t i = FindAtOrBefore(registered.ranges, begin + size_bytes - 1);
  if (i == registered.ranges.count()) return false;
  return registered.ranges[i].begin + registered.ranges[i].size_bytes > begin;
}

CUresult Register(uint64_t begin, uint64_t size_bytes, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (begin == 0 || size_bytes == 0 || begin + size_bytes < begin || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  const bool read_only_supported =
      session.device().attributes[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] == 1;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0 || (read_only && !read_only_supported)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  KnownMemory known;
  if (FindKnown(begin, &known) || session.device_range().Contains(begin, 1) ||
      session.host_range().Contains(begin, 1) || !MayRegister(begin, size_bytes, read_only)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t buffer_id = NewBufferId();
  Holding holding(&registered.lock);
  if (OverlapsLocked(begin, size_bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  return InsertSorted(&registered.ranges, {begin, size_bytes, flags, 0, buffer_id, {}})
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t DeviceBegin(const RegisteredMemory& range) {
  return range.pages.place + (range.begin - range.pages.begin);
}

// Nothing is in flight.
void MoveBack(const RegisteredMemory& range) {
  if (range.pages.size_bytes == 0) return;
  (void)ForgetMemory(DeviceBegin(range), MemoryKind::kPinnedHost);
  UnsharePages(range.pages);
}

CUresult Unregister(uint64_t begin) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory known;
  if (begin == 0 || FindKnown(begin, &known)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  RegisteredMemory range;
  {
    Holding holding(&registered.lock);
    const size_t i = FindAtOrBefore(registered.ranges, begin);
    if (i == registered.ranges.count() ||
        registered.ranges[i].begin + registered.ranges[i].size_bytes <= begin) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    if (registered.ranges[i].begin != begin) return CUDA_ERROR_INVALID_VALUE;
    range = registered.ranges[i];
    registered.ranges.Remove(i);
  }
  if (range.pages.size_bytes == 0) return CUDA_SUCCESS;
  const CUresult result = session.WaitForAll();
  MoveBack(range);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

}  // namespace

bool FindRegistered(uint64_t address, RegisteredMemory* found) {
  Holding holding(&registered.lock);
  const RegisteredMemory* range = FindRange(registered.ranges, address, 1);
  if (range == nullptr) return false;
  *found = *range;
  return true;
}

bool FindMoved(uint64_t address, uint64_t size_bytes, uint64_t* place) {
  Holding holding(&registered.lock);
  const RegisteredMemory* range = FindRange(registered.ranges, address, size_bytes);
  if (range == nullptr || range->pages.size_bytes == 0) return false;
  *place = DeviceBegin(*range) + (address - range->begin);
  return true;
}

CUresult MapRegistered(uint64_t address, CUdeviceptr* device) {
  Holding holding(&registered.lock);
  RegisteredMemory* range = FindRange(registered.ranges, address, 1);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (range->pages.size_bytes == 0) {
    SharedPages pages{};
    CUDA_RETURN_IF_ERROR(SharePages(range->begin, range->size_bytes, &pages));
    range->pages = pages;
    if (!NoteMemory({DeviceBegin(*range),
                     range->size_bytes,
                     MemoryKind::kPinnedHost,
                     range->flags | CU_MEMHOSTALLOC_DEVICEMAP,
                     {},
                     kBelongsToOther,
                     0})) {
      UnsharePages(pages);
      range->pages = {};
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *device = DeviceBegin(*range) + (address - range->begin);
  return CUDA_SUCCESS;
}

void ForgetAllRegistered() {
  Holding holding(&registered.lock);
  for (const RegisteredMemory& range : registered.ranges) MoveBack(range);
  registered.ranges.Clear();
}

}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuMemHostRegister_v2(void* address, size_t size_bytes, unsigned flags) {
  return Register(reinterpret_cast<uint64_t>(address), size_bytes, flags);
}
CUresult cuMemHostRegister(void* address, size_t size_bytes, unsigned flags) {
  return Register(reinterpret_cast<uint64_t>(address), size_bytes, flags);
}
CUresult cuMemHostUnregister(void* address) {
  return Unregister(reinterpret_cast<uint64_t>(address));
}

}  // extern "C"
