// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/shared_pages.h"

#include <pthread.h>
#include <sys/mman.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/regions.h"
#include "shim/copy/copy_threads.h"
#include "shim/memory/host_arena.h"
#include "shim/process/copy_pages.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/locked_memory.h"
#include "shim/process/process_map.h"
#include "shim/process/write_fence.h"

namespace gpuloom {
namespace {

constexpr uint64_t kPage = wire::kPageBytes;
// MADV_POPULATE_READ and MADV_POPULATE_WRITE; newer than some headers.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;
// From this size on pages get a region of their own, whose memory comes and goes with them. A
// smaller range is cut from chunks: no round trip.
constexpr uint64_t kRegionBytes = 2u << 20;
constexpr uint64_t kHugePage = 2u << 20;
// How much is moved at once: whole huge pages, so that the kernel need not split any. Other threads'
// writes wait as long as several threads copy that.
constexpr uint64_t kPieceBytes = 4 * kHugePage;
// Back, more: each piece stays a mapping of its own, and a process has 65,530 of these.
constexpr uint64_t kPieceBackBytes = 16u << 20;
// Memory for so much is made before it is moved, by several threads; the old pages are given back
// piece by piece. So a program needs only this much more than it has.
constexpr uint64_t kAheadBytes = 32u << 20;

struct Moved {
  Lock lock;
  Growing<SharedPages> pages GPULOOM_GUARDED_BY(lock);  // sorted by address, disjoint
  bool fork_handled GPULOOM_GUARDED_BY(lock) = false;
};
constinit Moved moved;

void* At(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

int ProtectionOf(const Mapped& mapped) {
  return (mapped.readable ? PROT_READ : 0) | (mapped.writable ? PROT_WRITE : 0) |
         (mapped.executable ? PROT_EXEC : 0);
}

// Calls `part(begin, size_bytes)` for pieces of a range, which end at multiples of their size, on several threads unless `help` is kNone; false if one of
// them was. Nothing is allocated, so it may be called while a fence is up, once the threads have been started.
template <typename Part>
bool Together(uint64_t begin, uint64_t size_bytes, uint64_t piece_bytes, Help help, Part part) {
  struct Shared {
    const uint64_t begin;
    const uint64_t end;
    const uint64_t piece_bytes;
    const Part& part;
    std::atomic<uint64_t> next;
    std::atomic<bool> failed{false};
  } shared{begin, begin + size_bytes, piece_bytes, part, {begin / piece_bytes * piece_bytes}};
  DoTogether(
      [](void* context) {
        auto* all = static_cast<Shared*>(context);
        for (;;) {
          const uint64_t at = all->next.fetch_add(all->piece_bytes, std::memory_order_relaxed);
          if (at >= all->end) return;
          const uint64_t first = at < all->begin ? all->begin : at;
          const uint64_t last = Least(at + all->piece_bytes, all->end);
          if (!all->part(first, last - first)) all->failed.store(true);
        }
      },
      &shared, size_bytes > piece_bytes ? help : Help::kNone);
  return !shared.failed.load();
}

void CopyTogether(uint64_t to, uint64_t from, uint64_t size_bytes, Help help) {
  (void)Together(to, size_bytes, kHugePage, help, [=](uint64_t at, uint64_t bytes) {
    CopyPages(At(at), At(from + (at - to)), bytes);
    return true;
  });
}

// Private anonymous memory with the content of `from` over the program's pages, which keep their
// protection. `fenced`: other threads may write to them.
bool MakePrivate(uint64_t begin, uint64_t from, uint64_t size_bytes, const Mapped& was,
                 bool fenced) {
  // As far behind the beginning of a huge page as `begin` is, so that huge pages stay whole when they are moved there.
  const uint64_t room_bytes = size_bytes + kHugePage;
  void* room =
      mmap(nullptr, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  const auto first = reinterpret_cast<uint64_t>(room);
  const uint64_t fresh = first + (begin - first) % kHugePage;
  // What is left over goes at once: as soon as the rest has been moved away, others may map there.
  if (fresh != first) munmap(room, fresh - first);
  munmap(At(fresh + size_bytes), first + room_bytes - (fresh + size_bytes));
  // A forked child has no threads but this one.
  const Help help = fenced ? Help::kWake : Help::kNone;
  // Before other threads wait. If it cannot, the copy does.
  (void)Together(fresh, size_bytes, kHugePage, help, [](uint64_t at, uint64_t bytes) {
    return madvise(At(at), bytes, kPopulateWrite) == 0;
  });
  fenced = fenced && was.writable;
  bool done = !fenced || RaiseFence(begin, size_bytes);
  if (done) {
    CopyTogether(fresh, from, size_bytes, help);
    done = (ProtectionOf(was) == (PROT_READ | PROT_WRITE) ||
            mprotect(At(fresh), size_bytes, ProtectionOf(was)) == 0) &&
           mremap(At(fresh), size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, At(begin)) !=
               MAP_FAILED;
    if (!done && fenced) mprotect(At(begin), size_bytes, ProtectionOf(was));
    if (fenced) LowerFence();
  }
  if (!done) munmap(At(fresh), size_bytes);
  return done;
}

// Calls `back(begin, size_bytes, mapped)` for the parts that still show the arena's pages, until it
// returns false.
template <typename Back>
bool ForEachLeft(const SharedPages& pages, Back back) {
  const uint64_t end = pages.begin + pages.size_bytes;
  ProcessMap map;
  Mapped mapped;
  for (uint64_t at = pages.begin; at < end && map.Find(at, &mapped) && mapped.begin < end;
       at = mapped.end) {
    if (mapped.begin > at) at = mapped.begin;
    if (mapped.inode != pages.inode || mapped.device != pages.device ||
        mapped.file_offset + (at - mapped.begin) != pages.file_offset + (at - pages.begin)) {
      continue;
    }
    if (!back(at, Least(mapped.end, end) - at, mapped)) return false;
  }
  return true;
}

// No page is half moved while another thread forks; the child has no other threads.
void BeforeFork() GPULOOM_ACQUIRE(moved.lock) { moved.lock.Acquire(); }
void AfterFork() GPULOOM_RELEASE(moved.lock) { moved.lock.Release(); }
void InChild() GPULOOM_RELEASE(moved.lock) {
  for (const SharedPages& pages : moved.pages) {
    (void)ForEachLeft(pages, [](uint64_t begin, uint64_t size_bytes, const Mapped& mapped) {
      if (!mapped.readable) mprotect(At(begin), size_bytes, PROT_READ);
      (void)MakePrivate(begin, begin, size_bytes, mapped, /*fenced=*/false);
      return true;
    });
  }
  moved.pages.Clear();
  moved.lock.Release();
}

bool MayMove(uint64_t begin, uint64_t size_bytes) {
  const uint64_t end = begin + size_bytes;
  const auto here = reinterpret_cast<uint64_t>(&end);
  if (here >= begin && here < end) return false;  // this thread's stack
  ProcessMap map;
  Mapped mapped;
  for (uint64_t at = begin; at < end; at = mapped.end) {
    if (!map.Find(at, &mapped) || mapped.begin > at) return false;
    if (!mapped.readable || !mapped.writable || mapped.executable || !mapped.is_private ||
        mapped.inode != 0 || mapped.is_stack) {
      return false;
    }
  }
  return true;
}

// Leaves out what is at the ends and moved already.
void LeaveOutMoved(uint64_t* first, uint64_t* end) {
  Holding holding(&moved.lock);
  if (FindRange(moved.pages, *first, kPage) != nullptr) *first += kPage;
  if (*first < *end && FindRange(moved.pages, *end - kPage, kPage) != nullptr) *end -= kPage;
}

// Replaces the program's pages by those of the arena, with the same content. An old size of 0 makes
// mremap map shared memory a second time. A forked child must find them there, too.
bool MakeShared(uint64_t begin, uint64_t place, uint64_t size_bytes) {
  if (!RaiseFence(begin, size_bytes)) return false;
  CopyTogether(place, begin, size_bytes, Help::kWake);
  const bool done =
      mremap(At(place), 0, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, At(begin)) != MAP_FAILED &&
      madvise(At(begin), size_bytes, MADV_DOFORK) == 0;
  if (!done) mprotect(At(begin), size_bytes, PROT_READ | PROT_WRITE);
  LowerFence();
  // The program finds its pages mapped, as after a registration of CUDA's, and not counted twice as
  // resident. Where the kernel cannot, that is all that is lost.
  (void)madvise(At(begin), size_bytes, kPopulateRead);
  (void)madvise(At(place), size_bytes, MADV_DONTNEED);
  return done;
}

bool MoveBackLocked(const SharedPages& pages) GPULOOM_REQUIRES(moved.lock) {
  return ForEachLeft(pages, [&](uint64_t begin, uint64_t size_bytes, const Mapped& mapped) {
    for (uint64_t done = 0; done < size_bytes;) {
      const uint64_t bytes = Least(kPieceBackBytes, size_bytes - done);
      const uint64_t at = begin + done;
      const uint64_t place = pages.place + (at - pages.begin);
      if (!MakePrivate(at, place, bytes, mapped, /*fenced=*/true)) return false;
      if (pages.block == 0) GiveRegionPiece(place, bytes);
      done += bytes;
    }
    return true;
  });
}

// Ends of pieces are those of huge pages.
bool MoveAllLocked(const SharedPages& pages) GPULOOM_REQUIRES(moved.lock) {
  const uint64_t end = pages.begin + pages.size_bytes;
  uint64_t populated = pages.block == 0 ? pages.begin : end;
  for (uint64_t at = pages.begin; at < end;) {
    const uint64_t bytes = Least((at / kPieceBytes + 1) * kPieceBytes, end) - at;
    bool done = true;
    if (at + bytes > populated) {
      // Up to the end of a huge page, so that the next one is made in one piece, too.
      const uint64_t ahead = Least(kAheadBytes - populated % kHugePage, end - populated);
      done = Together(pages.place + (populated - pages.begin), ahead, kPieceBytes, Help::kWake,
                      &PopulateRegion);
      populated += ahead;
    }
    if (!done || !MakeShared(at, pages.place + (at - pages.begin), bytes)) return false;
    at += bytes;
  }
  return true;
}

void ReleasePages(const SharedPages& pages) {
  if (pages.block != 0) {
    GivePinned(pages.block);
  } else {
    GiveRegion(pages.place);
  }
}

CUresult ReservePages(SharedPages* pages) {
  if (pages->size_bytes >= kRegionBytes) {
    CUDA_RETURN_IF_ERROR(TakeRegion(pages->size_bytes, pages->begin, &pages->place));
  } else {
    // One page more, because blocks need not begin at a page.
    CUDA_RETURN_IF_ERROR(TakePinned(pages->size_bytes + kPage, &pages->block));
    pages->place = (pages->block + kPage - 1) & ~(kPage - 1);
  }
  ProcessMap map;
  Mapped arena;
  if (!map.Find(pages->place, &arena) || arena.begin > pages->place) {
    ReleasePages(*pages);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  pages->device = arena.device;
  pages->inode = arena.inode;
  pages->file_offset = arena.file_offset + (pages->place - arena.begin);
  return CUDA_SUCCESS;
}

void ForgetLocked(const SharedPages& pages) GPULOOM_REQUIRES(moved.lock) {
  // What could not be moved back, and was unmapped since, may begin there too.
  size_t i = FindAtOrBefore(moved.pages, pages.begin);
  while (moved.pages[i].place != pages.place) --i;
  moved.pages.Remove(i);
}

// `in_use`: if not moved, whether some of the program's pages are the arena's all the same.
bool Move(const SharedPages& pages, bool* in_use) {
  *in_use = false;
  // Threads are made with malloc, whose lock a thread that waits at the fence may hold: so before.
  if (pages.size_bytes > kHugePage) (void)CopiesAlone();
  Holding holding(&moved.lock);
  if (!moved.fork_handled) {
    moved.fork_handled = pthread_atfork(&BeforeFork, &AfterFork, &InChild) == 0;
  }
  // Noted before: the note may lie in a page that is moved.
  if (!moved.fork_handled || !InsertSorted(&moved.pages, pages)) return false;
  if (MoveAllLocked(pages)) return true;
  *in_use = !MoveBackLocked(pages);
  if (!*in_use) ForgetLocked(pages);
  return false;
}

// What was locked in memory stays so, as a whole, if the limit allows.
void LockAsBefore(uint64_t begin, uint64_t size_bytes, const LockedMemory& before) {
  LockedMemory after;
  if (before.locked_kib != 0 && ReadLockedMemory(&after) && after.locked_kib < before.locked_kib) {
    (void)mlock(At(begin), size_bytes);
  }
}

}  // namespace

CUresult SharePages(uint64_t begin, uint64_t size_bytes, SharedPages* pages) {
  uint64_t first = begin & ~(kPage - 1);
  uint64_t end = (begin + size_bytes + kPage - 1) & ~(kPage - 1);
  LeaveOutMoved(&first, &end);
  LockedMemory memory;
  // A driver or io_uring that has pinned pages would not notice that others have taken their place.
  if (first >= end || !MayMove(first, end - first) || !ReadLockedMemory(&memory) ||
      memory.pinned_kib != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  SharedPages wanted = {};
  wanted.begin = first;
  wanted.size_bytes = end - first;
  CUDA_RETURN_IF_ERROR(ReservePages(&wanted));
  bool in_use;
  if (!Move(wanted, &in_use)) {
    if (!in_use) ReleasePages(wanted);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  LockAsBefore(first, end - first, memory);
  if (wanted.block == 0) {
    const CUresult result = PinRegion(wanted.place);
    if (result != CUDA_SUCCESS) {
      UnsharePages(wanted);
      return result;
    }
  }
  *pages = wanted;
  return CUDA_SUCCESS;
}

void UnsharePages(const SharedPages& pages) {
  if (pages.block == 0) UnpinRegion(pages.place);
  bool back;
  LockedMemory memory;
  {
    Holding holding(&moved.lock);
    back = ReadLockedMemory(&memory) && memory.pinned_kib == 0 && MoveBackLocked(pages);
    if (back) ForgetLocked(pages);
  }
  // Otherwise the program keeps the arena's pages, which are as good, and nobody else gets them.
  if (!back) return;
  LockAsBefore(pages.begin, pages.size_bytes, memory);
  ReleasePages(pages);
}

}  // namespace gpuloom
