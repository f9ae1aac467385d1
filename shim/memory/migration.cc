// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/migration.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/managed_memory_commands.h"
#include "shim/memory/address_space.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/migrating_range.h"
#include "shim/memory/shown_pages.h"
#include "shim/process/clock.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/log.h"
#include "shim/process/page_faults.h"
#include "shim/session/session.h"

namespace gpuloom {

namespace internal {
std::atomic<bool> anything_migrates{false};
std::atomic<uint64_t> space_begin{0};
std::atomic<uint64_t> space_bytes{0};
}  // namespace internal

namespace {

// How much one page fault fetches from the device at most. It begins with a chunk, and sequential
// access doubles it each time.
constexpr uint64_t kMostChunks = (16u << 20) / kMigratingChunkBytes;
// A fault that waits longer than this for the program's work is logged.
constexpr int64_t kSilentWaitNs = 5'000'000'000;

enum class Ability : uint8_t { kUnknown, kMigrates, kStays };

// The lock is that of the ranges; it is released while waiting for other work (PauseLocked).
struct Migration {
  Ability ability GPULOOM_GUARDED_BY(migrating.lock) = Ability::kUnknown;
  channel::Range space GPULOOM_GUARDED_BY(migrating.lock);
  // Where the next range is looked for first.
  uint64_t after_last GPULOOM_GUARDED_BY(migrating.lock) = 0;
  bool logged_wait GPULOOM_GUARDED_BY(migrating.lock) = false;
  uint64_t last_serial GPULOOM_GUARDED_BY(migrating.lock) = 0;
  // Threads that wait until no range has users. New users wait meanwhile.
  uint32_t settlers GPULOOM_GUARDED_BY(migrating.lock) = 0;
  // Streams may wait for the program, or are about to.
  bool may_wait GPULOOM_GUARDED_BY(migrating.lock) = false;
  std::atomic<uint32_t> posting{0};  // raised under the lock, lowered without
};
constinit Migration migration;

void Pause() {
  constexpr long kPauseNs = 20'000;
  const timespec pause = {0, kPauseNs};
  nanosleep(&pause, nullptr);
}

// The range that contains the address, or null.
MigratingRange* FindLocked(uint64_t address) GPULOOM_REQUIRES(migrating.lock) {
  return FindRange(migrating.all, address, 1);
}

// The largest range in device memory; null if there is none.
MigratingRange* LargestAtDeviceLocked() GPULOOM_REQUIRES(migrating.lock) {
  MigratingRange* largest = nullptr;
  for (MigratingRange& range : migrating.all) {
    if (range.backing != Backing::kDevice) continue;
    if (largest == nullptr || range.size_bytes > largest->size_bytes) largest = &range;
  }
  return largest;
}

bool AnyUserLocked() GPULOOM_REQUIRES(migrating.lock) {
  for (const MigratingRange& range : migrating.all) {
    if (range.users != 0) return true;
  }
  return false;
}

// Releases the lock for a moment.
void PauseLocked() GPULOOM_REQUIRES(migrating.lock) {
  migrating.lock.Release();
  Pause();
  migrating.lock.Acquire();
}

// Waits, with the lock released, until no thread is writing commands that name managed memory and
// all work is done.
CUresult WaitUntilUnusedLocked() GPULOOM_REQUIRES(migrating.lock) {
  ++migration.settlers;
  while (AnyUserLocked()) PauseLocked();
  --migration.settlers;
  return session.WaitForAll();
}

// For good, because we cannot know when the streams stop waiting for the program: see
// WaitForProgram.
CUresult SettleAllLocked() GPULOOM_REQUIRES(migrating.lock) {
  for (MigratingRange& range : migrating.all) range.prefers_host = true;
  if (LargestAtDeviceLocked() == nullptr) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(WaitUntilUnusedLocked());
  while (MigratingRange* range = LargestAtDeviceLocked()) {
    CUDA_RETURN_IF_ERROR(SettleRangeLocked(range));
  }
  return CUDA_SUCCESS;
}

// ---- faults ----

// Finds the range and waits, with the lock released, until it has no users. Null if there is none.
MigratingRange* FindUnusedLocked(uint64_t address) GPULOOM_REQUIRES(migrating.lock) {
  MigratingRange* range;
  ++migration.settlers;
  // Looked up again after each pause, in which the range may have been freed.
  while ((range = FindLocked(address)) != nullptr && range->users != 0) PauseLocked();
  --migration.settlers;
  return range;
}

// Our device reports no concurrent managed access, so programs may not touch managed memory while
// kernels run. One that does so all the same waits here.
void WaitForWorkLocked(const MigratingRange& range) GPULOOM_REQUIRES(migrating.lock) {
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
  Holding holding(&migrating.lock);
  MigratingRange* range = FindUnusedLocked(address);
  if (range == nullptr) {  // it has just been freed
    AdmitPages(address / wire::kPageBytes * wire::kPageBytes, wire::kPageBytes);
    return;
  }
  const uint64_t chunk = (address - range->begin) / kMigratingChunkBytes;
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
  AdmitPages(range->begin + chunk * kMigratingChunkBytes, (end - chunk) * kMigratingChunkBytes);
}

// ---- ability ----

// Determined once, at the first allocation that is large enough. Managed memory's commands came
// with minor version 5 of the wire.
Ability FindAbilityLocked() GPULOOM_REQUIRES(migrating.lock) {
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
    GPULOOM_REQUIRES(migrating.lock) {
  uint64_t candidate = from;
  for (const MigratingRange& range : migrating.all) {
    if (range.begin + range.size_bytes <= candidate) continue;
    if (range.begin >= candidate && range.begin - candidate >= size_bytes) break;
    candidate = wire::RoundUpToManagedStep(range.begin + range.size_bytes);
  }
  *begin = candidate;
  return migration.space.Contains(candidate, size_bytes);
}

// Stops watching the pages first, so that a thread that touches freed memory does not wait for
// ever.
void DropLocked(size_t i) GPULOOM_REQUIRES(migrating.lock) {
  const MigratingRange range = migrating.all[i];
  if (range.backing == Backing::kDevice) UnwatchPages(range.begin, range.size_bytes);
  UnmapRangeLocked(range);
  GiveShownPages(range.begin, range.size_bytes, range.pages);
  free(range.away);
  migrating.all.Remove(i);
  internal::anything_migrates.store(migrating.all.count() != 0, std::memory_order_relaxed);
}

}  // namespace

CUresult TakeMigrating(uint64_t size_bytes, unsigned flags, MigratingFor owner, uint64_t* begin) {
  Holding holding(&migrating.lock);
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
  MigratingRange range = {};
  range.size_bytes = granules * kGranuleBytes;
  // Freed addresses are not reused at once, because their pages may be unpinned later.
  if (!FindSpaceLocked(migration.after_last, range.size_bytes, &range.begin) &&
      !FindSpaceLocked(migration.space.begin, range.size_bytes, &range.begin)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  range.of_library = owner == MigratingFor::kLibrary;
  range.serial = ++migration.last_serial;
  range.attachment = flags;
  range.attached = wire::kLegacyStream;
  // All chunks are home.
  range.end_home = range.chunks();
  range.away = static_cast<uint8_t*>(calloc(range.chunks(), 1));
  if (range.away == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = TakeShownPages(range.begin, range.size_bytes, &range.pages);
  if (result == CUDA_SUCCESS && !InsertSorted(&migrating.all, range)) {
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
  Holding holding(&migrating.lock);
  const size_t i = FindAtOrBefore(migrating.all, begin);
  if (i != migrating.all.count() && migrating.all[i].begin == begin) DropLocked(i);
}

// An error in bringing home is that of a session that has ended.
void EndMigrating() {
  Holding holding(&migrating.lock);
  for (size_t i = migrating.all.count(); i-- > 0;) {
    if (migrating.all[i].of_library) {
      (void)BringHomeLocked(&migrating.all[i]);
    } else {
      DropLocked(i);
    }
  }
  ForgetOwnStreamLocked();
}

bool MapMigrating(uint64_t begin) {
  Holding holding(&migrating.lock);
  MigratingRange* range = FindLocked(begin);
  return range != nullptr && MapRangeLocked(range) == CUDA_SUCCESS;
}

CUresult PrefetchMigrating(uint64_t address, uint64_t size_bytes, bool to_device) {
  Holding holding(&migrating.lock);
  MigratingRange* range = FindLocked(address);
  if (range == nullptr) return CUDA_SUCCESS;
  const uint64_t first = (address - range->begin) / kMigratingChunkBytes;
  if (!to_device) {
    // Fetched when it is touched, in large pieces.
    range->next_chunk = first;
    range->next_chunks = kMostChunks;
    return CUDA_SUCCESS;
  }
  CUDA_RETURN_IF_ERROR(MapRangeLocked(range));
  const uint64_t end =
      (address - range->begin + size_bytes + kMigratingChunkBytes - 1) / kMigratingChunkBytes;
  const CUresult result = SendChunksLocked(range, first, end);
  return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;  // a launch handles it
}

CUresult PreferHost(uint64_t begin, bool on) {
  Holding holding(&migrating.lock);
  MigratingRange* range = FindLocked(begin);
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
  return range == nullptr ? CUDA_SUCCESS : SettleRangeLocked(range);
}

void AttachMigrating(uint64_t begin, unsigned flags, wire::StreamId stream) {
  Holding holding(&migrating.lock);
  MigratingRange* range = FindLocked(begin);
  if (range == nullptr) return;
  range->attachment = flags == 0 ? unsigned{CU_MEM_ATTACH_SINGLE} : flags;
  range->attached = stream;
}

void DetachMigrating(wire::StreamId stream) {
  if (!AnythingMigrates()) return;
  Holding holding(&migrating.lock);
  for (MigratingRange& range : migrating.all) {
    if (range.attached != stream) continue;
    range.attachment = CU_MEM_ATTACH_GLOBAL;
    range.attached = wire::kLegacyStream;
  }
}

bool AnyMigratingInHostMemory() {
  if (!AnythingMigrates()) return false;
  Holding holding(&migrating.lock);
  for (const MigratingRange& range : migrating.all) {
    if (range.backing == Backing::kPages) return true;
  }
  return false;
}

bool MigrateHome(uint64_t size_bytes) {
  if (!AnythingMigrates()) return false;
  Holding holding(&migrating.lock);
  if (LargestAtDeviceLocked() == nullptr || WaitUntilUnusedLocked() != CUDA_SUCCESS) return false;
  uint64_t left_bytes = 0;
  while (left_bytes < size_bytes) {
    MigratingRange* largest = LargestAtDeviceLocked();
    if (largest == nullptr || SettleRangeLocked(largest) != CUDA_SUCCESS) break;
    left_bytes += largest->size_bytes;
  }
  return left_bytes != 0;
}

// Takes the lock even if nothing migrates yet: another thread's allocation is either settled here,
// or sees `posting` and stays in host memory. `posting` is raised first: settling releases the
// lock.
WaitForProgram::WaitForProgram(bool waits) : waits_(waits) {
  if (!waits_) return;
  Holding holding(&migrating.lock);
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
  migrating.lock.Acquire();
  locked_ = true;
  for (MigratingRange& range : migrating.all) {
    if (result_ == CUDA_SUCCESS) result_ = SendRangeLocked(&range);
  }
}

void MigrationHold::End() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { migrating.lock.Release(); }

void MigrationUse::Begin(uint64_t to, uint64_t from) {
  Holding holding(&migrating.lock);
  // Otherwise copies in close succession could starve a settler.
  while (migration.settlers != 0) PauseLocked();
  for (int i = 0; i < 2; ++i) {
    const uint64_t address = i == 0 ? to : from;
    MigratingRange* range = address == 0 ? nullptr : FindLocked(address);
    if (range == nullptr) continue;
    if (result_ == CUDA_SUCCESS) result_ = SendRangeLocked(range);
    ++range->users;
    used_[i] = range->serial;
  }
}

// Errors are those of a session that has ended, which its next call tells of.
HomeHold::HomeHold(uint64_t begin) : begin_(begin) {
  if (!MayMigrate(begin)) return;
  Holding holding(&migrating.lock);
  MigratingRange* range = FindLocked(begin);
  if (range != nullptr && range->backing == Backing::kDevice &&
      WaitUntilUnusedLocked() == CUDA_SUCCESS) {
    range = FindLocked(begin);  // waiting has let others move it
    if (range != nullptr) (void)BringHomeLocked(range);
  }
  if (range == nullptr) return;
  range->stays_home = true;
  pages_ = range->pages;
}

HomeHold::~HomeHold() {
  if (pages_ == 0) return;
  Holding holding(&migrating.lock);
  if (MigratingRange* range = FindLocked(begin_); range != nullptr) range->stays_home = false;
}

void MigrationUse::End() {
  Holding holding(&migrating.lock);
  for (MigratingRange& range : migrating.all) {
    for (const uint64_t serial : used_) {
      // By serial, since the range may have been freed, and its addresses taken by another.
      if (range.serial == serial) --range.users;
    }
  }
}

}  // namespace gpuloom
