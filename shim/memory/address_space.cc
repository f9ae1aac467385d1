// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/address_space.h"

#include "proto/cuda/return_if_error.h"
#include "proto/wire/virtual_memory_commands.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// A reservation is only noted here: the executor learns of an address when something is mapped
// there, and judges it then.
struct Reservation {
  uint64_t begin;
  uint64_t size_bytes;
};

struct Space {
  Lock lock;
  channel::Range range GPULOOM_GUARDED_BY(lock);               // empty: not asked yet
  Growing<Reservation> reservations GPULOOM_GUARDED_BY(lock);  // sorted by address
};
constinit Space space;

CUresult AskLocked() GPULOOM_REQUIRES(space.lock) {
  if (space.range.size_bytes != 0) return CUDA_SUCCESS;
  wire::AddressSpace::Reply reply;
  const CUresult result = session.Call<wire::AddressSpace>({}, &reply);
  if (result == CUDA_SUCCESS) space.range = {reply.begin, reply.size_bytes};
  return result;
}

// First fit at or behind `from`. False if what is found ends outside of our part.
bool FindSpaceLocked(uint64_t from, uint64_t size_bytes, uint64_t alignment_bytes, uint64_t* begin)
    GPULOOM_REQUIRES(space.lock) {
  const auto align = [&](uint64_t address) {
    return (address + alignment_bytes - 1) & ~(alignment_bytes - 1);
  };
  uint64_t candidate = align(from);
  for (const Reservation& one : space.reservations) {
    if (one.begin + one.size_bytes <= candidate) continue;
    if (one.begin >= candidate && one.begin - candidate >= size_bytes) break;
    candidate = align(one.begin + one.size_bytes);
  }
  *begin = candidate;
  return space.range.Contains(candidate, size_bytes);
}

}  // namespace

CUresult ReserveAddresses(uint64_t size_bytes, uint64_t alignment_bytes, uint64_t wanted,
                          uint64_t* begin) {
  Holding holding(&space.lock);
  CUDA_RETURN_IF_ERROR(AskLocked());
  if (alignment_bytes < kGranuleBytes) alignment_bytes = kGranuleBytes;
  // The second keeps align() from overflowing.
  if (size_bytes > space.range.size_bytes || alignment_bytes > space.range.begin) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t found = 0;
  // CUDA takes the wanted address as a hint.
  if (!(space.range.Contains(wanted, size_bytes) &&
        FindSpaceLocked(wanted, size_bytes, alignment_bytes, &found) && found == wanted) &&
      !FindSpaceLocked(space.range.begin, size_bytes, alignment_bytes, &found)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!InsertSorted(&space.reservations, {found, size_bytes})) return CUDA_ERROR_OUT_OF_MEMORY;
  *begin = found;
  return CUDA_SUCCESS;
}

bool IsReserved(uint64_t begin, uint64_t size_bytes) {
  Holding holding(&space.lock);
  const size_t i = FindAtOrBefore(space.reservations, begin);
  return i != space.reservations.count() && space.reservations[i].begin == begin &&
         space.reservations[i].size_bytes == size_bytes;
}

void FreeAddresses(uint64_t begin) {
  Holding holding(&space.lock);
  const size_t i = FindAtOrBefore(space.reservations, begin);
  if (i != space.reservations.count() && space.reservations[i].begin == begin) {
    space.reservations.Remove(i);
  }
}

bool FindReservation(uint64_t address, uint64_t size_bytes, uint64_t* begin,
                     uint64_t* reserved_bytes) {
  Holding holding(&space.lock);
  const Reservation* found = FindRange(space.reservations, address, size_bytes);
  if (found == nullptr) return false;
  *begin = found->begin;
  *reserved_bytes = found->size_bytes;
  return true;
}

}  // namespace gpuloom
