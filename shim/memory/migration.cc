// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/migration.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/managed_memory_commands.h"
#include "shim/context/context.h"
#include "shim/memory/address_space.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/physical_memory.h"
#include "shim/memory/shown_pages.h"
#include "shim/process/clock.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/log.h"
#include "shim/process/page_faults.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {

namespace internal {
std::atomic<bool> anything_migrates{false};
std::atomic<uint64_t> space_begin{0};
std::atomic<uint64_t> space_bytes{0};
}  // namespace internal

namespace {

// How much one page fault fetches from the device: at first, and at most. Sequential access doubles
// it each time.
constexpr uint64_t kChunkBytes = 64u << 10;
constexpr uint64_t kMostChunks = (16u << 20) / kChunkBytes;
// A fault that waits longer than this for the program's work is logged.
constexpr int64_t kSilentWaitNs = 5'000'000'000;

// What is mapped at a range's addresses on the device.
enum class Backing : uint8_t { kNothing, kDevice, kPages };

// One allocation. A chunk is home (in the arena's pages) or away (in device memory); only a range
// that has device memory (kDevice) has chunks that are away.
struct Range {
  uint64_t begin;       // for program and device
  uint64_t size_bytes;  // whole granules
  uint64_t pages;       // the same memory in the arena
  Backing backing;
  bool prefers_host;
  uint64_t serial;  // never used again
  // CU_MEM_ATTACH_*, and by which stream: a touch waits for that stream alone, or for all work.
  unsigned attachment;
  wire::StreamId attached;
  uint32_t users;  // threads that are writing commands which name it: nothing is fetched
  // For each chunk, whether it is away; only chunks from first_home up to end_home can be at home.
  uint8_t* away;
  uint64_t first_home;
  uint64_t end_home;
  // Where a sequential reader faults next, and how many chunks its last fault fetched.
  uint64_t next_chunk;
  uint64_t next_chunks;

  uint64_t chunks() const { return size_bytes / kChunkBytes; }
  bool AnyHome() const { return first_home < end_home; }
};

enum class Ability : uint8_t { kUnknown, kMigrates, kStays };

// Lock order: pools.lock, then this lock, then physical_lock and the ring's. Held while waiting for
// copies, even on the page-fault thread; released while waiting for other work (PauseLocked).
struct Migration {
  Lock lock;
  Ability ability GPULOOM_GUARDED_BY(lock) = Ability::kUnknown;
  channel::Range space GPULOOM_GUARDED_BY(lock);
  uint64_t after_last GPULOOM_GUARDED_BY(lock) = 0;  // where the next range is looked for first
  Growing<Range> ranges GPULOOM_GUARDED_BY(lock);    // sorted by address
  // For our copies; does not wait for other streams. Of the context with this epoch.
  wire::StreamId stream GPULOOM_GUARDED_BY(lock){0};
  uint32_t epoch GPULOOM_GUARDED_BY(lock) = 0;
  bool has_stream GPULOOM_GUARDED_BY(lock) = false;
  bool logged_wait GPULOOM_GUARDED_BY(lock) = false;
  uint64_t last_serial GPULOOM_GUARDED_BY(lock) = 0;
  // Threads that wait until no range has users. New users wait meanwhile.
  uint32_t settlers GPULOOM_GUARDED_BY(lock) = 0;
  // Streams may wait for the program, or are about to.
  bool may_wait GPULOOM_GUARDED_BY(lock) = false;
  std::atomic<uint32_t> posting{0};  // raised under the lock, lowered without
};
constinit Migration migration;

void Pause() {
  constexpr long kPauseNs = 20'000;
  const timespec pause = {0, kPauseNs};
  nanosleep(&pause, nullptr);
}

CUresult FindOwnStreamLocked() GPULOOM_REQUIRES(migration.lock) {
  if (migration.has_stream && migration.epoch == ContextEpoch()) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(MakeOwnStream(CU_STREAM_NON_BLOCKING, &migration.stream));
  migration.epoch = ContextEpoch();
  migration.has_stream = true;
  return CUDA_SUCCESS;
}

// ---- copies ----

// Posts a copy between pages and device memory; the caller waits for `ticket`. It names the pages
// in the arena, which are never hidden.
CUresult CopyLocked(const Range& range, wire::CopyKind kind, uint64_t first, uint64_t end,
                    wire::Ticket* ticket) GPULOOM_REQUIRES(migration.lock) {
  const uint64_t device = range.begin + first * kChunkBytes;
  const uint64_t pages = range.pages + first * kChunkBytes;
  const bool sends = kind == wire::CopyKind::kHostToDevice;
  return session.PostOnStream<wire::Copy>(
      migration.stream, 0,
      [&](wire::Copy::Request& request, uint8_t*) GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
        request = {migration.stream, kind, sends ? device : pages, sends ? pages : device,
                   (end - first) * kChunkBytes};
      },
      ticket);
}

// The range that contains the address, or null.
Range* FindLocked(uint64_t address) GPULOOM_REQUIRES(migration.lock) {
  return FindRange(migration.ranges, address, 1);
}

// Finds the first run of chunks in [from, end) that are away, or at home.
bool FindRun(const Range& range, bool away, uint64_t from, uint64_t end, uint64_t* first,
             uint64_t* behind) {
  while (from < end && (range.away[from] != 0) != away) ++from;
  *first = from;
  while (from < end && (range.away[from] != 0) == away) ++from;
  *behind = from;
  return *first != *behind;
}

// Copies the home chunks of [first, end) to the device. Their pages are hidden first: a thread that
// writes to them meanwhile faults and waits. NOT_SUPPORTED if some cannot be hidden: all chunks
// still count as home then, and hidden pages are shown again at their first fault.
CUresult SendChunksLocked(Range* range, uint64_t first, uint64_t end)
    GPULOOM_REQUIRES(migration.lock) {
  if (range->backing != Backing::kDevice) return CUDA_SUCCESS;
  if (first < range->first_home) first = range->first_home;
  if (end > range->end_home) end = range->end_home;
  if (first >= end) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(FindOwnStreamLocked());
  wire::Ticket last{0};
  uint64_t run, behind;
  for (uint64_t at = first; FindRun(*range, false, at, end, &run, &behind); at = behind) {
    if (!HidePages(range->begin + run * kChunkBytes, (behind - run) * kChunkBytes)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUDA_RETURN_IF_ERROR(CopyLocked(*range, wire::CopyKind::kHostToDevice, run, behind, &last));
  }
  if (last == wire::Ticket{0}) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(session.WaitFor(migration.stream, last));
  memset(range->away + first, 1, end - first);
  // The bounds may stay too wide, which only costs a search.
  if (first == range->first_home) {
    range->first_home = end;
  } else if (end == range->end_home) {
    range->end_home = first;
  }
  return CUDA_SUCCESS;
}

// Fetches the chunks of [first, end), all of which are away. If the session has ended they count as
// home all the same, with the content that they had when they were sent.
CUresult FetchChunksLocked(Range* range, uint64_t first, uint64_t end)
    GPULOOM_REQUIRES(migration.lock) {
  wire::Ticket ticket{0};
  CUresult result = FindOwnStreamLocked();
  if (result == CUDA_SUCCESS) {
    result = CopyLocked(*range, wire::CopyKind::kDeviceToHost, first, end, &ticket);
  }
  if (result == CUDA_SUCCESS) result = session.WaitFor(migration.stream, ticket);
  memset(range->away + first, 0, end - first);
  if (!range->AnyHome()) {
    range->first_home = first;
    range->end_home = end;
  } else {
    if (first < range->first_home) range->first_home = first;
    if (end > range->end_home) range->end_home = end;
  }
  return result;
}

// ---- what the device finds ----

CUresult MapLocked(const Range& range, wire::PhysicalId physical) GPULOOM_REQUIRES(migration.lock) {
  wire::ManagedMap::Reply none;
  return session.Call<wire::ManagedMap>(
      {wire::DevicePtr{range.begin}, range.size_bytes, physical, 0, wire::HostPtr{range.pages}},
      &none);
}

void UnmapLocked(const Range& range) GPULOOM_REQUIRES(migration.lock) {
  if (range.backing == Backing::kNothing) return;
  wire::ManagedUnmap::Reply none;
  (void)session.Call<wire::ManagedUnmap>({wire::DevicePtr{range.begin}, range.size_bytes}, &none);
}

// Backs the range with device memory, which only the mapping holds. OUT_OF_MEMORY beyond the quota;
// not counted as a refusal, because no call of the program fails.
CUresult MapDeviceMemoryLocked(const Range& range) GPULOOM_REQUIRES(migration.lock) {
  if (!QuotaHasRoom(range.size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Holding holding(&physical_lock);
  PhysicalMemory* memory = nullptr;
  CUDA_RETURN_IF_ERROR(CreatePhysicalLocked(range.size_bytes, 0, &memory));
  const CUresult result = MapLocked(range, wire::PhysicalId{IdOfPhysicalLocked(memory)});
  // From here on the mapping alone holds it. If there is none, this releases it.
  memory->handles = 0;
  (void)ReleaseIfUnheldLocked(memory);
  return result;
}

// Maps the range on the device unless it is mapped already: to device memory if the range may
// migrate and the quota has room, else to its host pages. All chunks are home before and after.
CUresult EnsureMappedLocked(Range* range) GPULOOM_REQUIRES(migration.lock) {
  if (range->backing != Backing::kNothing) return CUDA_SUCCESS;
  if (!range->prefers_host && migration.ability == Ability::kMigrates) {
    const CUresult result = MapDeviceMemoryLocked(*range);
    if (result == CUDA_SUCCESS) {
      range->backing = Backing::kDevice;
      if (WatchPages(range->begin, range->size_bytes)) return CUDA_SUCCESS;
      UnmapLocked(*range);
      range->backing = Backing::kNothing;
    } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
      return result;
    }
  }
  CUDA_RETURN_IF_ERROR(MapLocked(*range, wire::PhysicalId{0}));
  range->backing = Backing::kPages;
  return CUDA_SUCCESS;
}

// Moves the range to its host pages for good. The device must have finished with it.
CUresult SettleLocked(Range* range) GPULOOM_REQUIRES(migration.lock) {
  if (range->backing != Backing::kDevice) return CUDA_SUCCESS;
  uint64_t first, behind;
  for (uint64_t at = 0; FindRun(*range, true, at, range->chunks(), &first, &behind); at = behind) {
    CUDA_RETURN_IF_ERROR(FetchChunksLocked(range, first, behind));
  }
  UnwatchPages(range->begin, range->size_bytes);
  UnmapLocked(*range);
  range->backing = Backing::kNothing;
  range->prefers_host = true;
  return EnsureMappedLocked(range);
}

// Makes the latest content of the whole range visible to the device.
CUresult SendLocked(Range* range) GPULOOM_REQUIRES(migration.lock) {
  if (!range->AnyHome() || range->backing == Backing::kPages) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(EnsureMappedLocked(range));
  const CUresult result = SendChunksLocked(range, 0, range->chunks());
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  // Memory that the program has locked cannot be hidden.
  CUDA_RETURN_IF_ERROR(session.WaitForAll());
  return SettleLocked(range);
}

// The largest range in device memory; null if there is none.
Range* LargestAtDeviceLocked() GPULOOM_REQUIRES(migration.lock) {
  Range* largest = nullptr;
  for (Range& range : migration.ranges) {
    if (range.backing != Backing::kDevice) continue;
    if (largest == nullptr || range.size_bytes > largest->size_bytes) largest = &range;
  }
  return largest;
}

bool AnyUserLocked() GPULOOM_REQUIRES(migration.lock) {
  for (const Range& range : migration.ranges) {
    if (range.users != 0) return true;
  }
  return false;
}

// Releases the lock for a moment.
void PauseLocked() GPULOOM_REQUIRES(migration.lock) {
  migration.lock.Release();
  Pause();
  migration.lock.Acquire();
}

// Waits, with the lock released, until no thread is writing commands that name managed memory and
// all work is done.
CUresult WaitUntilUnusedLocked() GPULOOM_REQUIRES(migration.lock) {
  ++migration.settlers;
  while (AnyUserLocked()) PauseLocked();
  --migration.settlers;
  return session.WaitForAll();
}

// For good, because we cannot know when the streams stop waiting for the program: see
// WaitForProgram.
CUresult SettleAllLocked() GPULOOM_REQUIRES(migration.lock) {
  for (Range& range : migration.ranges) range.prefers_host = true;
  if (LargestAtDeviceLocked() == nullptr) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(WaitUntilUnusedLocked());
  while (Range* range = LargestAtDeviceLocked()) CUDA_RETURN_IF_ERROR(SettleLocked(range));
  return CUDA_SUCCESS;
}

// ---- faults ----

// Finds the range and waits, with the lock released, until it has no users. Null if there is none.
Range* FindUnusedLocked(uint64_t address) GPULOOM_REQUIRES(migration.lock) {
  Range* range;
  ++migration.settlers;
  // Looked up again after each pause, in which the range may have been freed.
  while ((range = FindLocked(address)) != nullptr && range->users != 0) PauseLocked();
  --migration.settlers;
  return range;
}

// Our device reports no concurrent managed access, so programs may not touch managed memory while
// kernels run. One that does so all the same waits here.
void WaitForWorkLocked(const Range& range) GPULOOM_REQUIRES(migration.lock) {
  if (range.attachment == CU_MEM_ATTACH_SINGLE || range.attachment == CU_MEM_ATTACH_HOST) {
    (void)session.WaitForStream(range.attached);
    return;
  }
  const int64_t since_ns = NowNs();
  for (int turn = 0; !session.Idle() && session.Check() == CUDA_SUCCESS; ++turn) {
    if (turn < 100) {
      CpuPause();
      continue;
    }
    Pause();
    if (NowNs() - since_ns <= kSilentWaitNs) continue;
    if (!migration.logged_wait) {
      migration.logged_wait = true;
      Log(LogLevel::kWarn,
          "the program touches managed memory while its kernels run, and waits for them; if they "
          "wait for it, too, run it with GPULOOM_MANAGED_MEMORY=host");
    }
    break;
  }
  (void)session.WaitForAll();
}

// Runs on the page-fault thread while the faulting thread waits in the kernel. Errors are ignored:
// after its session has ended a program sees its pages' last content instead of hanging.
void OnFault(uint64_t address) {
  Holding holding(&migration.lock);
  Range* range = FindUnusedLocked(address);
  if (range == nullptr) {  // it has just been freed
    AdmitPages(address / wire::kPageBytes * wire::kPageBytes, wire::kPageBytes);
    return;
  }
  const uint64_t chunk = (address - range->begin) / kChunkBytes;
  uint64_t end = chunk + 1;
  if (range->away[chunk] != 0) {
    WaitForWorkLocked(*range);
    // Sequential access faults exactly behind what was fetched last.
    const bool goes_on = chunk == range->next_chunk && range->next_chunks != 0;
    range->next_chunks = goes_on ? range->next_chunks * 2 : 1;
    if (range->next_chunks > kMostChunks) range->next_chunks = kMostChunks;
    while (end < range->chunks() && end - chunk < range->next_chunks && range->away[end] != 0) {
      ++end;
    }
    range->next_chunk = end;
    (void)FetchChunksLocked(range, chunk, end);
  }
  AdmitPages(range->begin + chunk * kChunkBytes, (end - chunk) * kChunkBytes);
}

// ---- ability ----

// Determined once, at the first allocation that is large enough. Managed memory's commands came
// with minor version 5 of the wire.
Ability FindAbilityLocked() GPULOOM_REQUIRES(migration.lock) {
  if (!session.settings().managed_migrates || !session.ServerKnows(5)) {
    return Ability::kStays;
  }
  if (!StartPageFaults(&OnFault)) {
    Log(LogLevel::kInfo,
        "managed memory stays in host memory: the kernel tells this process of no page faults "
        "(userfaultfd: %s)",
        strerror(errno));
    return Ability::kStays;
  }
  if (!TakeManagedSpace(&migration.space)) return Ability::kStays;
  // Removes the arena's mapping from these addresses, so that a stray access faults instead of reaching the arena.
  CloseAddresses(migration.space.begin, migration.space.size_bytes);
  internal::space_bytes.store(migration.space.size_bytes, std::memory_order_relaxed);
  internal::space_begin.store(migration.space.begin, std::memory_order_relaxed);
  return Ability::kMigrates;
}

// Finds free addresses at or above `from`. All ranges begin at multiples of a step.
bool FindSpaceLocked(uint64_t from, uint64_t size_bytes, uint64_t* begin)
    GPULOOM_REQUIRES(migration.lock) {
  uint64_t candidate = from;
  for (const Range& range : migration.ranges) {
    if (range.begin + range.size_bytes <= candidate) continue;
    if (range.begin >= candidate && range.begin - candidate >= size_bytes) break;
    candidate = wire::RoundUpToManagedStep(range.begin + range.size_bytes);
  }
  *begin = candidate;
  return migration.space.Contains(candidate, size_bytes);
}

// Stops watching the pages first, so that a thread that touches freed memory does not wait for
// ever.
void DropLocked(size_t i) GPULOOM_REQUIRES(migration.lock) {
  const Range range = migration.ranges[i];
  if (range.backing == Backing::kDevice) UnwatchPages(range.begin, range.size_bytes);
  UnmapLocked(range);
  GiveShownPages(range.begin, range.size_bytes, range.pages);
  free(range.away);
  migration.ranges.Remove(i);
  internal::anything_migrates.store(migration.ranges.count() != 0, std::memory_order_relaxed);
}

}  // namespace

CUresult TakeMigrating(uint64_t size_bytes, unsigned flags, uint64_t* begin) {
  Holding holding(&migration.lock);
  if (migration.ability == Ability::kUnknown) migration.ability = FindAbilityLocked();
  if (migration.ability != Ability::kMigrates || size_bytes > migration.space.size_bytes) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // While streams may wait for the program, a fault must not wait for the streams: see
  // WaitForProgram.
  if (migration.posting.load() != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (migration.may_wait) {
    if (!session.Idle()) return CUDA_ERROR_NOT_SUPPORTED;
    migration.may_wait = false;
  }
  const uint64_t granules = (size_bytes + kGranuleBytes - 1) / kGranuleBytes;
  Range range = {};
  range.size_bytes = granules * kGranuleBytes;
  // Freed addresses are not reused at once, because their pages may be unpinned later.
  if (!FindSpaceLocked(migration.after_last, range.size_bytes, &range.begin) &&
      !FindSpaceLocked(migration.space.begin, range.size_bytes, &range.begin)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  range.serial = ++migration.last_serial;
  range.attachment = flags;
  range.attached = wire::kLegacyStream;
  // All chunks are home.
  range.end_home = range.chunks();
  range.away = static_cast<uint8_t*>(calloc(range.chunks(), 1));
  if (range.away == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = TakeShownPages(range.begin, range.size_bytes, &range.pages);
  if (result == CUDA_SUCCESS && !InsertSorted(&migration.ranges, range)) {
    GiveShownPages(range.begin, range.size_bytes, range.pages);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    free(range.away);
    return result;
  }
  migration.after_last = wire::RoundUpToManagedStep(range.begin + range.size_bytes);
  internal::anything_migrates.store(true, std::memory_order_relaxed);
  *begin = range.begin;
  return CUDA_SUCCESS;
}

void GiveMigrating(uint64_t begin) {
  Holding holding(&migration.lock);
  const size_t i = FindAtOrBefore(migration.ranges, begin);
  if (i != migration.ranges.count() && migration.ranges[i].begin == begin) DropLocked(i);
}

void EndMigrating() {
  Holding holding(&migration.lock);
  while (migration.ranges.count() != 0) DropLocked(migration.ranges.count() - 1);
  migration.has_stream = false;
}

bool MapMigrating(uint64_t begin) {
  Holding holding(&migration.lock);
  Range* range = FindLocked(begin);
  return range != nullptr && EnsureMappedLocked(range) == CUDA_SUCCESS;
}

CUresult PrefetchMigrating(uint64_t address, uint64_t size_bytes, bool to_device) {
  Holding holding(&migration.lock);
  Range* range = FindLocked(address);
  if (range == nullptr) return CUDA_SUCCESS;
  const uint64_t first = (address - range->begin) / kChunkBytes;
  if (!to_device) {
    // Fetched when it is touched, in large pieces.
    range->next_chunk = first;
    range->next_chunks = kMostChunks;
    return CUDA_SUCCESS;
  }
  CUDA_RETURN_IF_ERROR(EnsureMappedLocked(range));
  const uint64_t end = (address - range->begin + size_bytes + kChunkBytes - 1) / kChunkBytes;
  const CUresult result = SendChunksLocked(range, first, end);
  return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;  // a launch handles it
}

CUresult PreferHost(uint64_t begin, bool on) {
  Holding holding(&migration.lock);
  Range* range = FindLocked(begin);
  if (range == nullptr) return CUDA_SUCCESS;
  if (!on) {
    // Ranges that were settled because streams may wait for the program stay settled.
    if (!migration.may_wait && range->backing == Backing::kNothing) range->prefers_host = false;
    return CUDA_SUCCESS;
  }
  range->prefers_host = true;
  if (range->backing != Backing::kDevice) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(WaitUntilUnusedLocked());
  range = FindLocked(begin);
  return range == nullptr ? CUDA_SUCCESS : SettleLocked(range);
}

void AttachMigrating(uint64_t begin, unsigned flags, wire::StreamId stream) {
  Holding holding(&migration.lock);
  Range* range = FindLocked(begin);
  if (range == nullptr) return;
  range->attachment = flags == 0 ? unsigned{CU_MEM_ATTACH_SINGLE} : flags;
  range->attached = stream;
}

void DetachMigrating(wire::StreamId stream) {
  if (!AnythingMigrates()) return;
  Holding holding(&migration.lock);
  for (Range& range : migration.ranges) {
    if (range.attached != stream) continue;
    range.attachment = CU_MEM_ATTACH_GLOBAL;
    range.attached = wire::kLegacyStream;
  }
}

bool MigrateHome(uint64_t size_bytes) {
  if (!AnythingMigrates()) return false;
  Holding holding(&migration.lock);
  if (LargestAtDeviceLocked() == nullptr || WaitUntilUnusedLocked() != CUDA_SUCCESS) return false;
  uint64_t left_bytes = 0;
  while (left_bytes < size_bytes) {
    Range* largest = LargestAtDeviceLocked();
    if (largest == nullptr || SettleLocked(largest) != CUDA_SUCCESS) break;
    left_bytes += largest->size_bytes;
  }
  return left_bytes != 0;
}

// Takes the lock even if nothing migrates yet: another thread's allocation is either settled here,
// or sees `posting` and stays in host memory. `posting` is raised first: settling releases the
// lock.
WaitForProgram::WaitForProgram(bool waits) : waits_(waits) {
  if (!waits_) return;
  Holding holding(&migration.lock);
  migration.posting.fetch_add(1);
  migration.may_wait = true;
  result_ = SettleAllLocked();
}

WaitForProgram::~WaitForProgram() {
  // The lock is not taken: its holder may wait for room in the ring, and the ring for what the program does next.
  if (waits_) migration.posting.fetch_sub(1);
}

// Holding the lock keeps all chunks on the device: OnFault needs it to fetch any.
void MigrationHold::Begin() GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
  migration.lock.Acquire();
  locked_ = true;
  for (Range& range : migration.ranges) {
    if (result_ == CUDA_SUCCESS) result_ = SendLocked(&range);
  }
}

void MigrationHold::End() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { migration.lock.Release(); }

void MigrationUse::Begin(uint64_t to, uint64_t from) {
  Holding holding(&migration.lock);
  // Otherwise copies in close succession could starve a settler.
  while (migration.settlers != 0) PauseLocked();
  for (int i = 0; i < 2; ++i) {
    const uint64_t address = i == 0 ? to : from;
    Range* range = address == 0 ? nullptr : FindLocked(address);
    if (range == nullptr) continue;
    if (result_ == CUDA_SUCCESS) result_ = SendLocked(range);
    ++range->users;
    used_[i] = range->serial;
  }
}

void MigrationUse::End() {
  Holding holding(&migration.lock);
  for (Range& range : migration.ranges) {
    for (const uint64_t serial : used_) {
      // By serial, since the range may have been freed, and its addresses taken by another.
      if (range.serial == serial) --range.users;
    }
  }
}

}  // namespace gpuloom
