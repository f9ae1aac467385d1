// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/registered_memory.h"

#include <sched.h>
#include <sys/mman.h>

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/regions.h"
#include "shim/context/context.h"
#include "shim/copy/queued_copy.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/process/growing.h"
#include "shim/process/process_map.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Registered {
  // Held while a range is moved that is registered already.
  Lock moving GPULOOM_ACQUIRED_BEFORE(lock);
  Lock lock;
  Growing<RegisteredMemory> ranges GPULOOM_GUARDED_BY(lock);  // sorted by address, disjoint
  std::atomic<uint32_t> parts_in_use{0};                      // MovedParts
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

bool OverlapsLocked(uint64_t begin, uint64_t size_bytes) GPULOOM_REQUIRES(registered.lock) {
  const size_t i = FindAtOrBefore(registered.ranges, begin + size_bytes - 1);
  if (i == registered.ranges.count()) return false;
  return registered.ranges[i].begin + registered.ranges[i].size_bytes > begin;
}

// The range that contains all of it, or null; none that is being registered or unregistered.
RegisteredMemory* FindLocked(uint64_t address, uint64_t size_bytes)
    GPULOOM_REQUIRES(registered.lock) {
  RegisteredMemory* range = FindRange(registered.ranges, address, size_bytes);
  return range == nullptr || range->hidden ? nullptr : range;
}

uint64_t DeviceBegin(const RegisteredMemory& range) {
  return range.pages.place + (range.begin - range.pages.begin);
}

// Moves the range's pages to where the device reaches them. On failure they stay, in range->pages
// too.
CUresult MakeReachable(RegisteredMemory* range) {
  SharedPages pages{};
  CUDA_RETURN_IF_ERROR(SharePages(range->begin, range->size_bytes, &pages));
  range->pages = pages;
  if (!HasDeviceAddress(*range)) return CUDA_SUCCESS;
  if (NoteMemory({DeviceBegin(*range),
                  range->size_bytes,
                  MemoryKind::kPinnedHost,
                  range->flags | CU_MEMHOSTALLOC_DEVICEMAP,
                  {},
                  kBelongsToOther,
                  0})) {
    return CUDA_SUCCESS;
  }
  UnsharePages(pages);
  range->pages = {};
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Nothing is in flight.
void MoveBack(const RegisteredMemory& range) {
  if (range.pages.size_bytes == 0) return;
  if (HasDeviceAddress(range)) (void)ForgetMemory(DeviceBegin(range), MemoryKind::kPinnedHost);
  UnsharePages(range.pages);
}

// Notes where the pages are. Returns false if the range is not registered any more.
bool NoteMoved(const RegisteredMemory& moved) {
  Holding holding(&registered.lock);
  RegisteredMemory* range = FindLocked(moved.begin, 1);
  if (range == nullptr || range->buffer_id != moved.buffer_id) return false;
  range->pages = moved.pages;
  return true;
}
// The end of registering.
void Show(const RegisteredMemory& made) {
  Holding holding(&registered.lock);
  RegisteredMemory* range = FindRange(registered.ranges, made.begin, 1);
  if (range == nullptr) return;  // a reset of the context has been faster
  *range = made;
  range->hidden = false;
}
void Drop(uint64_t begin) {
  Holding holding(&registered.lock);
  const size_t i = FindAtOrBefore(registered.ranges, begin);
  if (i != registered.ranges.count() && registered.ranges[i].begin == begin) {
    registered.ranges.Remove(i);
  }
}

bool Holds(const SharedPages& pages, uint64_t address, uint64_t size_bytes) {
  return address >= pages.begin && size_bytes <= pages.size_bytes &&
         address - pages.begin <= pages.size_bytes - size_bytes;
}

// The pages that hold the byte: those of its range, or of a neighbour with which it shares its
// first or last page.
const SharedPages* FindPagesLocked(size_t of, uint64_t address) GPULOOM_REQUIRES(registered.lock) {
  const RegisteredMemory& range = registered.ranges[of];
  if (Holds(range.pages, address, 1)) return &range.pages;
  const uint64_t first = range.begin & ~(wire::kPageBytes - 1);
  for (size_t i = of; i-- > 0;) {
    const RegisteredMemory& before = registered.ranges[i];
    if (before.begin + before.size_bytes <= first) break;
    if (!before.hidden && Holds(before.pages, address, 1)) return &before.pages;
  }
  const uint64_t last = (range.begin + range.size_bytes - 1) | (wire::kPageBytes - 1);
  for (size_t i = of + 1; i < registered.ranges.count(); ++i) {
    const RegisteredMemory& behind = registered.ranges[i];
    if (behind.begin > last) break;
    if (!behind.hidden && Holds(behind.pages, address, 1)) return &behind.pages;
  }
  return nullptr;
}

// What was moved is the device's; for anything else copies are queued.
CUresult PrepareCopies(RegisteredMemory* range) {
  const CUresult result = MakeReachable(range);
  if (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  // If there are no threads, or no memory for staging, the copies themselves report the failure.
  (void)PrepareQueuedCopies();
  return session.Check();
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
  // Memory of ours cannot be registered: pinned memory already is what registration makes, and the
  // rest is the device's.
  if (FindKnown(begin, &known) || session.device_range().Contains(begin, 1) ||
      session.host_range().Contains(begin, 1) || !MayRegister(begin, size_bytes, read_only)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Its place in the table is taken before anything is moved, hidden: another thread that registers
  // the same memory is refused, and none finds it half moved.
  RegisteredMemory range = {begin, size_bytes, flags, /*hidden=*/true, NewBufferId(), {}};
  {
    Holding holding(&registered.lock);
    if (OverlapsLocked(begin, size_bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!InsertSorted(&registered.ranges, range)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = PrepareCopies(&range);
  if (result == CUDA_SUCCESS) {
    Show(range);
  } else {
    Drop(begin);
  }
  return result;
}

CUresult Unregister(uint64_t begin) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory known;
  if (begin == 0 || FindKnown(begin, &known)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  RegisteredMemory range;
  {
    Holding holding(&registered.lock);
    RegisteredMemory* found = FindLocked(begin, 1);
    if (found == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (found->begin != begin) return CUDA_ERROR_INVALID_VALUE;
    found->hidden = true;
    range = *found;
  }
  // Copies of neighbours that are being posted; they will find it no more.
  while (registered.parts_in_use.load(std::memory_order_acquire) != 0) sched_yield();
  // Queued copies use the program's own address.
  const CUresult result = session.WaitForAll();
  MoveBack(range);
  Drop(begin);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

}  // namespace

bool FindRegistered(uint64_t address, RegisteredMemory* found) {
  Holding holding(&registered.lock);
  const RegisteredMemory* range = FindLocked(address, 1);
  if (range == nullptr) return false;
  *found = *range;
  return true;
}

bool IsRegistered(uint64_t address, uint64_t size_bytes) {
  Holding holding(&registered.lock);
  return FindLocked(address, size_bytes) != nullptr;
}

bool FindMoved(uint64_t address, uint64_t size_bytes, uint64_t* place) {
  Holding holding(&registered.lock);
  const RegisteredMemory* range = FindLocked(address, size_bytes);
  if (range == nullptr || !Holds(range->pages, address, size_bytes)) return false;
  *place = range->pages.place + (address - range->pages.begin);
  return true;
}

bool HasDeviceAddress(const RegisteredMemory& range) {
  return Holds(range.pages, range.begin, range.size_bytes);
}

MovedParts::MovedParts(uint64_t address, uint64_t size_bytes) {
  Holding holding(&registered.lock);
  if (FindLocked(address, size_bytes) == nullptr) return;
  const size_t range = FindAtOrBefore(registered.ranges, address);
  uint32_t count = 0;
  for (const uint64_t end = address + size_bytes; address < end; ++count) {
    const SharedPages* pages = FindPagesLocked(range, address);
    if (pages == nullptr || count == kMost) return;
    const uint64_t pages_end = pages->begin + pages->size_bytes;
    const uint64_t bytes = (pages_end < end ? pages_end : end) - address;
    parts_[count] = {address, bytes, pages->place + (address - pages->begin)};
    address += bytes;
  }
  count_ = count;
  registered.parts_in_use.fetch_add(1, std::memory_order_acq_rel);
}

MovedParts::~MovedParts() {
  if (count_ != 0) registered.parts_in_use.fetch_sub(1, std::memory_order_acq_rel);
}

CUresult MapRegistered(uint64_t address, CUdeviceptr* device) {
  // One at a time: the second finds what the first has done.
  Holding moving(&registered.moving);
  RegisteredMemory range;
  {
    Holding holding(&registered.lock);
    const RegisteredMemory* found = FindLocked(address, 1);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    range = *found;
  }
  if (range.pages.size_bytes == 0) {
    // What was in the way when it was registered may be gone. To others it is still what is copied
    // through staging.
    CUDA_RETURN_IF_ERROR(MakeReachable(&range));
    if (!NoteMoved(range)) {
      MoveBack(range);
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!HasDeviceAddress(range)) return CUDA_ERROR_NOT_SUPPORTED;
  *device = DeviceBegin(range) + (address - range.begin);
  return CUDA_SUCCESS;
}

void ForgetAllRegistered() {
  Holding holding(&registered.lock);
  for (const RegisteredMemory& range : registered.ranges) MoveBack(range);
  registered.ranges.Clear();
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

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
