// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/host_arena.h"

#include <errno.h>
#include <sys/mman.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/host_memory_commands.h"
#include "proto/wire/managed_memory_commands.h"
#include "proto/wire/regions.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// Blocks begin at multiples of this, like the device's allocations.
constexpr uint64_t kAlignmentBytes = 512;
constexpr uint64_t kStepBytes = 2u << 20;  // a huge page
constexpr uint64_t kLargestStepBytes = 64u << 20;
constexpr uint64_t kKeptBytes = 64u << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE; newer than some headers
constexpr int kCollapse = 25;       // MADV_COLLAPSE, since Linux 6.1
// Below this, huge pages are not worth their system call, which waits for every processor once.
constexpr uint64_t kLeastHugeBytes = 4u << 20;

// A part of the arena in use: a chunk of pinned memory, or space for a message.
struct Segment {
  uint64_t begin;
  uint64_t size_bytes;
  uint64_t used_bytes;  // of a chunk, or of a region, which may begin inside its first huge page
  bool pinned;
};
struct Block {
  uint64_t begin;
  uint64_t size_bytes;
};

struct HostArena {
  Lock lock;
  // Sorted by address, as the following two.
  Growing<Segment> segments GPULOOM_GUARDED_BY(lock);
  // Inside chunks; neighbours in one chunk are joined.
  Growing<Block> free GPULOOM_GUARDED_BY(lock);
  Growing<Block> used GPULOOM_GUARDED_BY(lock);
  uint64_t pinned_bytes GPULOOM_GUARDED_BY(lock) = 0;  // of all chunks
  uint64_t idle_bytes GPULOOM_GUARDED_BY(lock) = 0;    // of chunks with nothing in use
  uint64_t end GPULOOM_GUARDED_BY(lock) = UINT64_MAX;  // at the latest that of the host range
  // Where the next chunk is looked for first. An address that was pinned a moment ago may not be
  // unpinned yet: the executor waits for an idle device to do that, and pinning it again would have
  // to wait, too.
  uint64_t after_last_chunk GPULOOM_GUARDED_BY(lock) = 0;
};
constinit HostArena arena;

uint64_t RoundUp(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// The first gap between the segments that fits, at `from` or later.
bool FindSpaceLocked(uint64_t from, uint64_t size_bytes, uint64_t* begin)
    GPULOOM_REQUIRES(arena.lock) {
  uint64_t candidate = RoundUp(from, kStepBytes);
  for (const Segment& segment : arena.segments) {
    if (segment.begin + segment.size_bytes <= candidate) continue;
    if (segment.begin >= candidate && segment.begin - candidate >= size_bytes) break;
    candidate = RoundUp(segment.begin + segment.size_bytes, kStepBytes);
  }
  if (!session.host_range().Contains(candidate, size_bytes)) return false;
  if (candidate + size_bytes > arena.end) return false;
  *begin = candidate;
  return true;
}

// Takes addresses; there is memory behind them once somebody writes to it. Only pinned segments
// avoid the addresses of the last ones (see after_last_chunk).
CUresult TakeSegmentLocked(uint64_t size_bytes, bool pinned, uint64_t* begin)
    GPULOOM_REQUIRES(arena.lock) {
  if (size_bytes > session.host_range().size_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  size_bytes = RoundUp(size_bytes, wire::kPageBytes);
  const uint64_t first = session.host_range().begin;
  if (!(pinned && FindSpaceLocked(arena.after_last_chunk, size_bytes, begin)) &&
      !FindSpaceLocked(first, size_bytes, begin)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (pinned) arena.after_last_chunk = *begin + size_bytes;
  return InsertSorted(&arena.segments, {*begin, size_bytes, 0, pinned}) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_OUT_OF_MEMORY;
}

void GiveSegmentLocked(size_t i) GPULOOM_REQUIRES(arena.lock) {
  const Segment segment = arena.segments[i];
  // The system gets the pages back, so the next user finds zeros.
  madvise(reinterpret_cast<void*>(segment.begin), segment.size_bytes, MADV_REMOVE);
  arena.segments.Remove(i);
}

// Huge pages for what of a new range is made of such. Shared memory gets them by itself only where the system's
// administrator has said so (transparent_hugepage/shmem_enabled; by default nowhere), but any process may ask for them.
// They take a sixth of the time to make, and a hundredth to map and to pin in the executor
// (docs/design/registered-memory.md). Where the kernel has none, or is older, the pages stay small.
void MakeHugePages(uint64_t begin, uint64_t size_bytes) {
  const uint64_t first = RoundUp(begin, kStepBytes);
  const uint64_t end = (begin + size_bytes) / kStepBytes * kStepBytes;
  if (size_bytes < kLeastHugeBytes || first >= end) return;
  // It refuses where there is no page at all. A write of ours would end the program where its cgroup has no more
  // memory.
  for (uint64_t at = first; at < end; at += kStepBytes) {
    if (madvise(reinterpret_cast<void*>(at), wire::kPageBytes, kPopulateWrite) != 0) return;
  }
  (void)madvise(reinterpret_cast<void*>(first), end - first, kCollapse);
}

bool Populate(uint64_t begin, uint64_t size_bytes) {
  MakeHugePages(begin, size_bytes);
  if (madvise(reinterpret_cast<void*>(begin), size_bytes, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  // Before Linux 5.14. The pages are new, so writing zeros changes nothing.
  for (uint64_t page = begin; page < begin + size_bytes; page += wire::kPageBytes) {
    *reinterpret_cast<volatile char*>(page) = 0;
  }
  return true;
}

// Joins the block with its free neighbors of the same chunk. Never across chunks, which are
// unpinned one by one.
bool AddFreeLocked(Block block, const Segment& chunk) GPULOOM_REQUIRES(arena.lock) {
  const size_t before = FindAtOrBefore(arena.free, block.begin);
  if (before != arena.free.count()) {
    Block& left = arena.free[before];
    if (left.begin >= chunk.begin && left.begin + left.size_bytes == block.begin) {
      block = {left.begin, left.size_bytes + block.size_bytes};
      arena.free.Remove(before);
    }
  }
  const size_t after = FindAtOrBefore(arena.free, block.begin + block.size_bytes);
  if (after != arena.free.count()) {
    const Block& right = arena.free[after];
    if (right.begin == block.begin + block.size_bytes &&
        right.begin < chunk.begin + chunk.size_bytes) {
      block.size_bytes += right.size_bytes;
      arena.free.Remove(after);
    }
  }
  return InsertSorted(&arena.free, block);
}

// The lock is held across the round trip, so that two threads do not both grow the arena for what
// one chunk would hold.
CUresult AddChunkLocked(uint64_t size_bytes) GPULOOM_REQUIRES(arena.lock) {
  uint64_t begin;
  CUDA_RETURN_IF_ERROR(TakeSegmentLocked(size_bytes, /*pinned=*/true, &begin));
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (Populate(begin, size_bytes)) {
    wire::HostRegister::Reply reply;
    result = session.Call<wire::HostRegister>({wire::HostPtr{begin}, size_bytes}, &reply);
  }
  const size_t i = FindAtOrBefore(arena.segments, begin);
  if (result == CUDA_SUCCESS && !AddFreeLocked({begin, size_bytes}, arena.segments[i])) {
    wire::HostUnregister::Reply reply;
    (void)session.Call<wire::HostUnregister>({wire::HostPtr{begin}, size_bytes}, &reply);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    GiveSegmentLocked(i);
    return result;
  }
  arena.pinned_bytes += size_bytes;
  arena.idle_bytes += size_bytes;
  return CUDA_SUCCESS;
}

// Frees idle chunks until at most `keep_bytes` are idle.
void TrimLocked(uint64_t keep_bytes) GPULOOM_REQUIRES(arena.lock) {
  for (size_t i = arena.segments.count(); i-- > 0 && arena.idle_bytes > keep_bytes;) {
    const Segment chunk = arena.segments[i];
    if (!chunk.pinned || chunk.used_bytes != 0) continue;
    wire::HostUnregister::Reply reply;
    if (session.Call<wire::HostUnregister>({wire::HostPtr{chunk.begin}, chunk.size_bytes},
                                           &reply) != CUDA_SUCCESS) {
      return;
    }
    // Usually one; more where a block between them was lost for want of memory.
    const uint64_t last = chunk.begin + chunk.size_bytes - 1;
    for (size_t block; (block = FindAtOrBefore(arena.free, last)) != arena.free.count() &&
                       arena.free[block].begin >= chunk.begin;) {
      arena.free.Remove(block);
    }
    arena.pinned_bytes -= chunk.size_bytes;
    arena.idle_bytes -= chunk.size_bytes;
    GiveSegmentLocked(i);
  }
}

// First fit, which keeps the arena's first chunks in use and lets those behind them become
// idle.
bool TakeBlockLocked(uint64_t size_bytes, uint64_t* address) GPULOOM_REQUIRES(arena.lock) {
  for (size_t i = 0; i < arena.free.count(); ++i) {
    Block& block = arena.free[i];
    if (block.size_bytes < size_bytes) continue;
    if (!InsertSorted(&arena.used, {block.begin, size_bytes})) return false;
    *address = block.begin;
    Segment& chunk = arena.segments[FindAtOrBefore(arena.segments, block.begin)];
    if (chunk.used_bytes == 0) arena.idle_bytes -= chunk.size_bytes;
    chunk.used_bytes += size_bytes;
    block.begin += size_bytes;
    block.size_bytes -= size_bytes;
    if (block.size_bytes == 0) arena.free.Remove(i);
    return true;
  }
  return false;
}

// Chunks grow with what the program uses, so that a program with little pinned memory pins little.
CUresult GrowLocked(uint64_t size_bytes) GPULOOM_REQUIRES(arena.lock) {
  const uint64_t limit = session.pinned_limit_bytes();
  uint64_t step = arena.pinned_bytes;
  if (step < kStepBytes) step = kStepBytes;
  if (step > kLargestStepBytes) step = kLargestStepBytes;
  uint64_t chunk = RoundUp(size_bytes, kStepBytes);
  if (chunk < step && arena.pinned_bytes + step <= limit) chunk = RoundUp(step, kStepBytes);
  if (arena.pinned_bytes + chunk > limit) TrimLocked(0);
  if (arena.pinned_bytes + chunk > limit) chunk = RoundUp(size_bytes, wire::kPageBytes);
  if (chunk > limit || arena.pinned_bytes > limit - chunk) return CUDA_ERROR_OUT_OF_MEMORY;
  return AddChunkLocked(chunk);
}

// The region whose first page is at `begin`.
size_t FindRegionLocked(uint64_t begin) GPULOOM_REQUIRES(arena.lock) {
  return FindAtOrBefore(arena.segments, begin);
}

uint64_t RegionBytes(uint64_t begin) {
  Holding holding(&arena.lock);
  return arena.segments[FindRegionLocked(begin)].used_bytes;
}

}  // namespace

CUresult TakePinned(uint64_t size_bytes, uint64_t* address) {
  if (size_bytes > session.pinned_limit_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  size_bytes = RoundUp(size_bytes, kAlignmentBytes);
  Holding holding(&arena.lock);
  if (TakeBlockLocked(size_bytes, address)) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(GrowLocked(size_bytes));
  return TakeBlockLocked(size_bytes, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void GivePinned(uint64_t address) {
  Holding holding(&arena.lock);
  const size_t i = FindAtOrBefore(arena.used, address);
  if (i == arena.used.count() || arena.used[i].begin != address) return;
  const Block block = arena.used[i];
  arena.used.Remove(i);
  Segment& chunk = arena.segments[FindAtOrBefore(arena.segments, address)];
  chunk.used_bytes -= block.size_bytes;
  if (chunk.used_bytes == 0) arena.idle_bytes += chunk.size_bytes;
  // If this fails, the block is lost until its chunk is freed, which only wastes its size.
  (void)AddFreeLocked(block, chunk);
  TrimLocked(kKeptBytes);
}

bool TakeManagedSpace(channel::Range* space) {
  Holding holding(&arena.lock);
  wire::ManagedSpace::Reply reply;
  if (session.Call<wire::ManagedSpace>({}, &reply) != CUDA_SUCCESS) return false;
  *space = {reply.begin, reply.size_bytes};
  arena.end = reply.begin;
  const size_t last = arena.segments.count();
  return last == 0 ||
         arena.segments[last - 1].begin + arena.segments[last - 1].size_bytes <= reply.begin;
}

// Idle chunks make room first: they count as pinned, and nobody uses them.
CUresult TakeRegion(uint64_t size_bytes, uint64_t like, uint64_t* begin) {
  const uint64_t limit = session.pinned_limit_bytes();
  Holding holding(&arena.lock);
  if (size_bytes <= limit && arena.pinned_bytes > limit - size_bytes) TrimLocked(0);
  if (size_bytes > limit || arena.pinned_bytes > limit - size_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Segments begin at huge pages. What lies before the region has no memory.
  const uint64_t before = like % kStepBytes;
  CUDA_RETURN_IF_ERROR(TakeSegmentLocked(before + size_bytes, /*pinned=*/true, begin));
  *begin += before;
  // All in use, so that it is never trimmed as an idle chunk.
  arena.segments[FindRegionLocked(*begin)].used_bytes = size_bytes;
  arena.pinned_bytes += size_bytes;
  return CUDA_SUCCESS;
}

bool PopulateRegion(uint64_t begin, uint64_t size_bytes) { return Populate(begin, size_bytes); }

CUresult PinRegion(uint64_t begin) {
  wire::HostRegister::Reply reply;
  return session.Call<wire::HostRegister>({wire::HostPtr{begin}, RegionBytes(begin)}, &reply);
}

void UnpinRegion(uint64_t begin) {
  wire::HostUnregister::Reply reply;
  (void)session.Call<wire::HostUnregister>({wire::HostPtr{begin}, RegionBytes(begin)}, &reply);
}

void GiveRegionPiece(uint64_t begin, uint64_t size_bytes) {
  madvise(reinterpret_cast<void*>(begin), size_bytes, MADV_REMOVE);
}

void GiveRegion(uint64_t begin) {
  Holding holding(&arena.lock);
  const size_t i = FindRegionLocked(begin);
  arena.pinned_bytes -= arena.segments[i].used_bytes;
  GiveSegmentLocked(i);
}

CUresult TakeTransferSpace(uint64_t size_bytes, uint64_t* address) {
  {
    Holding holding(&arena.lock);
    CUDA_RETURN_IF_ERROR(TakeSegmentLocked(size_bytes, /*pinned=*/false, address));
  }
  // It is written once from end to end, for which huge pages are faster than a fault for each small one.
  MakeHugePages(*address, size_bytes);
  return CUDA_SUCCESS;
}

void GiveTransferSpace(uint64_t address) {
  Holding holding(&arena.lock);
  const size_t i = FindAtOrBefore(arena.segments, address);
  if (i != arena.segments.count() && arena.segments[i].begin == address) GiveSegmentLocked(i);
}

}  // namespace gpuloom
