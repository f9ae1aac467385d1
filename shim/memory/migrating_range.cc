// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/migrating_range.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/managed_memory_commands.h"
#include "shim/context/context.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/physical_memory.h"
#include "shim/process/page_faults.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {

constinit MigratingRanges migrating;

namespace {

// For our copies; does not wait for other streams. Of the context with this epoch.
struct OwnStream {
  wire::StreamId id GPULOOM_GUARDED_BY(migrating.lock){0};
  uint32_t epoch GPULOOM_GUARDED_BY(migrating.lock) = 0;
  bool exists GPULOOM_GUARDED_BY(migrating.lock) = false;
};
constinit OwnStream own_stream;

CUresult FindOwnStreamLocked() GPULOOM_REQUIRES(migrating.lock) {
  if (own_stream.exists && own_stream.epoch == ContextEpoch()) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(MakeOwnStream(CU_STREAM_NON_BLOCKING, &own_stream.id));
  own_stream.epoch = ContextEpoch();
  own_stream.exists = true;
  return CUDA_SUCCESS;
}

// Posts a copy between pages and device memory; the caller waits for `ticket`. It names the pages
// in the arena, which are never hidden.
CUresult CopyLocked(const MigratingRange& range, wire::CopyKind kind, uint64_t first, uint64_t end,
                    wire::Ticket* ticket) GPULOOM_REQUIRES(migrating.lock) {
  const uint64_t device = range.begin + first * kMigratingChunkBytes;
  const uint64_t pages = range.pages + first * kMigratingChunkBytes;
  const bool sends = kind == wire::CopyKind::kHostToDevice;
  return session.PostOnStream<wire::Copy>(
      own_stream.id, 0,
      [&](wire::Copy::Request& request, uint8_t*) GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
        request = {own_stream.id, kind, sends ? device : pages, sends ? pages : device,
                   (end - first) * kMigratingChunkBytes};
      },
      ticket);
}

// Finds the first run of chunks in [from, end) that are away, or at home.
bool FindRun(const MigratingRange& range, bool away, uint64_t from, uint64_t end, uint64_t* first,
             uint64_t* behind) {
  while (from < end && (range.away[from] != 0) != away) ++from;
  *first = from;
  while (from < end && (range.away[from] != 0) == away) ++from;
  *behind = from;
  return *first != *behind;
}

CUresult MapLocked(const MigratingRange& range, wire::PhysicalId physical)
    GPULOOM_REQUIRES(migrating.lock) {
  wire::ManagedMap::Reply none;
  return session.Call<wire::ManagedMap>(
      {wire::DevicePtr{range.begin}, range.size_bytes, physical, 0, wire::HostPtr{range.pages}},
      &none);
}

// Backs the range with device memory, which only the mapping holds. OUT_OF_MEMORY beyond the quota;
// not counted as a refusal, because no call of the program fails.
CUresult MapDeviceMemoryLocked(const MigratingRange& range) GPULOOM_REQUIRES(migrating.lock) {
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

}  // namespace

CUresult SendChunksLocked(MigratingRange* range, uint64_t first, uint64_t end) {
  if (range->backing != Backing::kDevice || range->stays_home) return CUDA_SUCCESS;
  if (first < range->first_home) first = range->first_home;
  if (end > range->end_home) end = range->end_home;
  if (first >= end) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(FindOwnStreamLocked());
  wire::Ticket last{0};
  uint64_t run, behind;
  for (uint64_t at = first; FindRun(*range, false, at, end, &run, &behind); at = behind) {
    if (!HidePages(range->begin + run * kMigratingChunkBytes,
                   (behind - run) * kMigratingChunkBytes)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUDA_RETURN_IF_ERROR(CopyLocked(*range, wire::CopyKind::kHostToDevice, run, behind, &last));
  }
  if (last == wire::Ticket{0}) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(session.WaitFor(own_stream.id, last));
  memset(range->away + first, 1, end - first);
  // The bounds may stay too wide, which only costs a search.
  if (first == range->first_home) {
    range->first_home = end;
  } else if (end == range->end_home) {
    range->end_home = first;
  }
  return CUDA_SUCCESS;
}

CUresult FetchChunksLocked(MigratingRange* range, uint64_t first, uint64_t end) {
  wire::Ticket ticket{0};
  CUresult result = FindOwnStreamLocked();
  if (result == CUDA_SUCCESS) {
    result = CopyLocked(*range, wire::CopyKind::kDeviceToHost, first, end, &ticket);
  }
  if (result == CUDA_SUCCESS) result = session.WaitFor(own_stream.id, ticket);
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

void UnmapRangeLocked(const MigratingRange& range) {
  if (range.backing == Backing::kNothing) return;
  wire::ManagedUnmap::Reply none;
  (void)session.Call<wire::ManagedUnmap>({wire::DevicePtr{range.begin}, range.size_bytes}, &none);
}

CUresult MapRangeLocked(MigratingRange* range) {
  if (range->backing != Backing::kNothing) return CUDA_SUCCESS;
  if (!range->prefers_host) {
    const CUresult result = MapDeviceMemoryLocked(*range);
    if (result == CUDA_SUCCESS) {
      range->backing = Backing::kDevice;
      if (WatchPages(range->begin, range->size_bytes)) return CUDA_SUCCESS;
      UnmapRangeLocked(*range);
      range->backing = Backing::kNothing;
    } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
      return result;
    }
  }
  CUDA_RETURN_IF_ERROR(MapLocked(*range, wire::PhysicalId{0}));
  range->backing = Backing::kPages;
  return CUDA_SUCCESS;
}

CUresult BringHomeLocked(MigratingRange* range) {
  if (range->backing == Backing::kDevice) {
    uint64_t first, behind;
    for (uint64_t at = 0; FindRun(*range, true, at, range->chunks(), &first, &behind);
         at = behind) {
      CUDA_RETURN_IF_ERROR(FetchChunksLocked(range, first, behind));
    }
    UnwatchPages(range->begin, range->size_bytes);
  }
  UnmapRangeLocked(*range);
  range->backing = Backing::kNothing;
  return CUDA_SUCCESS;
}

CUresult SettleRangeLocked(MigratingRange* range) {
  if (range->backing != Backing::kDevice) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(BringHomeLocked(range));
  range->prefers_host = true;
  return MapRangeLocked(range);
}

CUresult SendRangeLocked(MigratingRange* range) {
  if (!range->AnyHome() || range->backing == Backing::kPages || range->stays_home) {
    return CUDA_SUCCESS;
  }
  CUDA_RETURN_IF_ERROR(MapRangeLocked(range));
  const CUresult result = SendChunksLocked(range, 0, range->chunks());
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  // Memory that the program has locked cannot be hidden.
  CUDA_RETURN_IF_ERROR(session.WaitForAll());
  return SettleRangeLocked(range);
}

void ForgetOwnStreamLocked() { own_stream.exists = false; }

}  // namespace gpuloom
