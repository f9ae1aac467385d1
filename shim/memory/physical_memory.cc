// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/physical_memory.h"

#include <climits>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/memory.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"

namespace gpuloom {

constinit Lock physical_lock;

namespace {

// An object lives as long as a handle or a mapping needs it, so a live object need not be a handle
// of the program's: see FindPhysicalLocked.
constinit HandleTable<PhysicalMemory, wire::kMaxPhysicals> table;

wire::PhysicalId IdOf(const PhysicalMemory* memory) { return wire::PhysicalId{table.IdOf(memory)}; }

struct Changing {
  ChangingRange* ranges GPULOOM_GUARDED_BY(physical_lock) = nullptr;
  uint32_t waiters GPULOOM_GUARDED_BY(physical_lock) = 0;
  std::atomic<uint32_t> ended{0};  // how many ranges, wrapping around
};
constinit Changing changing;

}  // namespace

ChangingRange::ChangingRange(uint64_t begin, uint64_t size_bytes)
    : begin_(begin), size_bytes_(size_bytes) {
  while (!IsFreeLocked()) {
    const uint32_t seen = changing.ended.load(std::memory_order_relaxed);
    ++changing.waiters;
    physical_lock.Release();
    FutexWait(&changing.ended, seen);
    physical_lock.Acquire();
    --changing.waiters;
  }
  next_ = changing.ranges;
  changing.ranges = this;
}

ChangingRange::~ChangingRange() {
  ChangingRange** link = &changing.ranges;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  changing.ended.fetch_add(1, std::memory_order_relaxed);
  if (changing.waiters != 0) FutexWake(&changing.ended, INT_MAX);
}

bool ChangingRange::IsFreeLocked() const {
  for (const ChangingRange* other = changing.ranges; other != nullptr; other = other->next_) {
    if (begin_ - other->begin_ < other->size_bytes_ || other->begin_ - begin_ < size_bytes_) {
      return false;
    }
  }
  return true;
}

PhysicalMemory* FindPhysicalLocked(CUmemGenericAllocationHandle handle) {
  PhysicalMemory* memory = table.Find(reinterpret_cast<const void*>(handle));
  return memory != nullptr && memory->handles != 0 ? memory : nullptr;
}

PhysicalMemory* PhysicalAtLocked(uint32_t id) { return table.At(id); }

uint32_t IdOfPhysicalLocked(const PhysicalMemory* memory) { return table.IdOf(memory); }

CUmemGenericAllocationHandle HandleOf(const PhysicalMemory* memory) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(memory);
}

// The tenant chooses the id, here and for imports: the request names the memory that it makes.
CUresult CreatePhysicalLocked(uint64_t size_bytes, uint32_t handle_types, PhysicalMemory** memory) {
  PhysicalMemory* made = table.Take(physical_lock);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::PhysicalCreate::Reply reply;
  const CUresult result = session.Call<wire::PhysicalCreate>({IdOf(made), 0, size_bytes}, &reply);
  if (result != CUDA_SUCCESS) {
    table.Give(physical_lock, made);
    return result;
  }
  made->handles = 1;
  made->handle_types = handle_types;
  made->size_bytes = size_bytes;
  *memory = made;
  return CUDA_SUCCESS;
}

// handle_types stays 0: imported memory is exported by its maker only.
CUresult ImportPhysicalLocked(const wire::Token& token, PhysicalMemory** memory) {
  PhysicalMemory* made = table.Take(physical_lock);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::PhysicalImport::Reply reply;
  const CUresult result = session.Call<wire::PhysicalImport>({IdOf(made), 0, token}, &reply);
  if (result != CUDA_SUCCESS) {
    table.Give(physical_lock, made);
    return result;
  }
  made->handles = 1;
  made->size_bytes = reply.size_bytes;
  *memory = made;
  return CUDA_SUCCESS;
}

CUresult ReleaseIfUnheldLocked(PhysicalMemory* memory) {
  if (memory->handles != 0 || memory->mappings != 0) return CUDA_SUCCESS;
  const wire::PhysicalId id = IdOf(memory);
  wire::PhysicalRelease::Reply reply;
  const CUresult result = session.Call<wire::PhysicalRelease>({id}, &reply);
  // Also if the call failed: then the session has ended, and nothing of it is left to name.
  table.Give(physical_lock, memory);
  return result;
}

// The executor maps it first: an entry in the table means that the device finds memory there.
CUresult MapPhysicalLocked(PhysicalMemory* memory, uint64_t address) {
  wire::MemMap::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::MemMap>(
      {wire::DevicePtr{address}, memory->size_bytes, IdOf(memory), 0}, &reply));
  if (NoteMemory({address,
                  memory->size_bytes,
                  MemoryKind::kMapped,
                  CU_MEM_ACCESS_FLAGS_PROT_NONE,
                  {},
                  table.IdOf(memory),
                  0})) {
    ++memory->mappings;
    return CUDA_SUCCESS;
  }
  // It has been mapped, but cannot be noted.
  wire::MemUnmap::Reply none;
  (void)session.Call<wire::MemUnmap>({wire::DevicePtr{address}, memory->size_bytes}, &none);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult UnmapPhysicalLocked(uint64_t address) {
  KnownMemory known;
  if (!FindKnown(address, &known) || known.begin != address ||
      !ForgetMemory(address, MemoryKind::kMapped)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::MemUnmap::Reply reply;
  physical_lock.Release();
  const CUresult result =
      session.Call<wire::MemUnmap>({wire::DevicePtr{address}, known.size_bytes}, &reply);
  physical_lock.Acquire();
  // There is one: a mapping holds it.
  PhysicalMemory* memory = table.At(known.object);
  --memory->mappings;
  const CUresult released = ReleaseIfUnheldLocked(memory);
  return result != CUDA_SUCCESS ? result : released;
}

// Judged as a whole before anything is sent, so that a wrong range changes nothing. The caller's
// ChangingRange keeps the mappings as they are in between.
CUresult SetAccessLocked(uint64_t address, uint64_t size_bytes, uint32_t flags) {
  const uint64_t end = address + size_bytes;
  KnownMemory known;
  for (uint64_t at = address; at != end; at = known.begin + known.size_bytes) {
    if (!FindKnown(at, &known) || known.kind != MemoryKind::kMapped || known.begin != at ||
        known.size_bytes > end - at) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  wire::MemSetAccess::Reply reply;
  physical_lock.Release();
  const CUresult result =
      session.Call<wire::MemSetAccess>({wire::DevicePtr{address}, size_bytes, flags, 0}, &reply);
  physical_lock.Acquire();
  if (result != CUDA_SUCCESS) return result;
  for (uint64_t at = address; at != end; at += known.size_bytes) {
    if (!FindKnown(at, &known)) break;
    SetMemoryFlags(at, flags);
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
