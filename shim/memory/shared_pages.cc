// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/shared_pages.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/regions.h"
#include "shim/memory/host_arena.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/process_map.h"

namespace gpuloom {
namespace {

constexpr uint64_t kPage = wire::kPageBytes;
// How much is moved at once, apart from the first and the last page.
constexpr uint64_t kPieceBytes = 64u << 10;

struct Moved {
  Lock lock;
  Growing<SharedPages> pages;  // sorted by address, disjoint
  bool fork_handled = false;
};
constinit Moved moved;

void* At(uint64_t address) { return reinterpret_cast<void*>(address); }

// Private anonymous memory with the same content in place of the pages.
bool MakePrivate(uint64_t begin, uint64_t size_bytes) {
  void* fresh =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  memcpy(fresh, At(begin), size_bytes);
  if (mremap(fresh, size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, At(begin)) !=
      MAP_FAILED) {
    return true;
  }
  munmap(fresh, size_bytes);
  return false;
}

// Replaces the program's pages by those of the arena at `place`, with the same content. An old size
// of 0 makes mremap map shared memory a second time. A forked child must find them there, too.
bool MakeShared(uint64_t begin, uint64_t place, uint64_t size_bytes) {
  memcpy(At(place), At(begin), size_bytes);
  return mremap(At(place), 0, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, At(begin)) != MAP_FAILED &&
         madvise(At(begin), size_bytes, MADV_DOFORK) == 0;
}

// No page is half moved while another thread forks; the child has no other threads.
void BeforeFork() { moved.lock.Acquire(); }
void AfterFork() { moved.lock.Release(); }
void InChild() {
  for (const SharedPages& pages : moved.pages) (void)MakePrivate(pages.begin, pages.size_bytes);
  moved.pages.Clear();
  moved.lock.Release();
}

bool MayMove(uint64_t begin, uint64_t size_bytes, bool whole_pages) {
  const uint64_t end = begin + size_bytes;
  const auto here = reinterpret_cast<uint64_t>(&end);
  if (here >= begin && here < end) return false;  // this thread's stack
  ProcessMap map;
  Mapped mapped;
  for (uint64_t at = begin; at < end; at = mapped.end) {
    if (!map.Find(at, &mapped) || mapped.begin > at) return false;
    if (!mapped.readable || !mapped.writable || !mapped.is_private || mapped.inode != 0 ||
        mapped.is_stack || (mapped.is_heap && !whole_pages)) {
      return false;
    }
  }
  return true;
}

// If a piece cannot be moved, those before it are moved back.
bool MoveAll(const SharedPages& pages) {
  const uint64_t last = pages.begin + pages.size_bytes - kPage;
  for (uint64_t at = pages.begin; at <= last;) {
    uint64_t bytes = at == pages.begin || at == last ? kPage : kPieceBytes;
    if (at != last && bytes > last - at) bytes = last - at;
    if (!MakeShared(at, pages.place + (at - pages.begin), bytes)) {
      if (at != pages.begin) (void)MakePrivate(pages.begin, at - pages.begin);
      return false;
    }
    at += bytes;
  }
  return true;
}

}  // namespace

CUresult SharePages(uint64_t begin, uint64_t size_bytes, SharedPages* pages) {
  const uint64_t first = begin & ~(kPage - 1);
  const uint64_t end = (begin + size_bytes + kPage - 1) & ~(kPage - 1);
  const bool whole_pages = first == begin && end == begin + size_bytes;
  if (!MayMove(first, end - first, whole_pages)) return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t block;
  // One page more, because blocks need not begin at a page.
  CUDA_RETURN_IF_ERROR(TakePinned(end - first + kPage, &block));
  *pages = {first, end - first, (block + kPage - 1) & ~(kPage - 1), block};
  bool done = false;
  {
    Holding holding(&moved.lock);
    if (!moved.fork_handled) {
      moved.fork_handled = pthread_atfork(&BeforeFork, &AfterFork, &InChild) == 0;
    }
    // Noted before: the note may lie in a page that is moved.
    if (moved.fork_handled && InsertSorted(&moved.pages, *pages)) {
      done = MoveAll(*pages);
      if (!done) moved.pages.Remove(FindAtOrBefore(moved.pages, pages->begin));
    }
  }
  if (done) return CUDA_SUCCESS;
  GivePinned(block);
  *pages = {};
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void UnsharePages(const SharedPages& pages) {
  Mapped arena;
  {
    ProcessMap map;
    if (!map.Find(pages.place, &arena) || arena.begin > pages.place) return;
  }
  bool back = true;
  {
    Holding holding(&moved.lock);
    const uint64_t end = pages.begin + pages.size_bytes;
    ProcessMap map;
    Mapped mapped;
    for (uint64_t at = pages.begin; at < end && map.Find(at, &mapped) && mapped.begin < end;
         at = mapped.end) {
      if (mapped.begin > at) at = mapped.begin;
      const bool ours = mapped.inode == arena.inode && mapped.device == arena.device &&
                        mapped.file_offset + (at - mapped.begin) ==
                            arena.file_offset + (pages.place - arena.begin) + (at - pages.begin);
      const uint64_t piece_end = mapped.end < end ? mapped.end : end;
      if (ours) back = MakePrivate(at, piece_end - at) && back;
    }
    const size_t i = FindAtOrBefore(moved.pages, pages.begin);
    if (back && i != moved.pages.count() && moved.pages[i].begin == pages.begin) {
      moved.pages.Remove(i);
    }
  }
  // If there is no memory for copies, the program keeps the arena's pages, and nobody else gets
  // them.
  if (back) GivePinned(pages.block);
}

}  // namespace gpuloom
