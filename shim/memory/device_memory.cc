// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/device_memory.h"

#include "proto/wire/device_memory_commands.h"
#include "shim/memory/address_space.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

constexpr uint64_t kLargeBytes = 1u << 20;  // allocations of at least this size get whole granules
constexpr uint64_t kSmallStepBytes = 512;   // smaller ones are cut in multiples of this
// What is kept counts against the quota: enough for a program that allocates and frees scratch
// memory in a loop, and little beside any quota.
constexpr uint64_t kMostKeptBytes = 4u << 20;
constexpr size_t kMostKept = 64;

struct Kept {
  uint64_t address;
  uint64_t taken_bytes;
  wire::StreamId stream;
  wire::Ticket ticket;
};

struct KeptMemory {
  Lock lock;
  Growing<Kept> blocks GPULOOM_GUARDED_BY(lock);  // oldest first
  uint64_t bytes GPULOOM_GUARDED_BY(lock) = 0;
};
constinit KeptMemory kept;

// A block of exactly that size, the one freed last first.
bool TakeKept(uint64_t taken_bytes, uint64_t* address) {
  Holding holding(&kept.lock);
  for (size_t i = kept.blocks.count(); i-- > 0;) {
    const Kept& block = kept.blocks[i];
    if (block.taken_bytes != taken_bytes || !session.Done(block.stream, block.ticket)) continue;
    *address = block.address;
    kept.bytes -= taken_bytes;
    kept.blocks.Remove(i);
    return true;
  }
  return false;
}

// Takes the oldest unused block if more are kept than allowed.
bool TakeSurplus(uint64_t* address) {
  Holding holding(&kept.lock);
  if (kept.bytes <= kMostKeptBytes && kept.blocks.count() <= kMostKept) return false;
  for (size_t i = 0; i < kept.blocks.count(); ++i) {
    const Kept block = kept.blocks[i];
    if (!session.Done(block.stream, block.ticket)) continue;
    *address = block.address;
    kept.bytes -= block.taken_bytes;
    kept.blocks.Remove(i);
    return true;
  }
  return false;
}

bool Keep(const Kept& block) {
  Holding holding(&kept.lock);
  if (!kept.blocks.Push(block)) return false;
  kept.bytes += block.taken_bytes;
  return true;
}

// Fails only when the session has ended, and its memory with it.
void FreeLater(uint64_t address) {
  (void)session.Post<wire::MemFreeLater>({wire::DevicePtr{address}});
}

void FreeSurplus() {
  uint64_t address;
  while (TakeSurplus(&address)) FreeLater(address);
}

}  // namespace

uint64_t TakenBytes(uint64_t size_bytes) {
  const uint64_t step = size_bytes < kLargeBytes ? kSmallStepBytes : kGranuleBytes;
  uint64_t up = 0;
  if (__builtin_add_overflow(size_bytes, step - 1, &up)) return 0;
  const uint64_t taken = up / step * step;
  // Rounding must not make a small allocation a large one.
  return size_bytes < kLargeBytes && taken >= kLargeBytes ? kGranuleBytes : taken;
}

CUresult TakeDeviceMemory(uint64_t size_bytes, uint64_t* address) {
  uint64_t taken_bytes = TakenBytes(size_bytes);
  // More than there can be: the node refuses it, and counts that.
  if (taken_bytes == 0) taken_bytes = UINT64_MAX;
  if (taken_bytes < kLargeBytes && TakeKept(taken_bytes, address)) return CUDA_SUCCESS;
  wire::MemAlloc::Reply reply;
  const CUresult result = session.Call<wire::MemAlloc>({taken_bytes}, &reply);
  if (result == CUDA_SUCCESS) *address = static_cast<uint64_t>(reply.address);
  return result;
}

void GiveDeviceMemory(uint64_t address, uint64_t size_bytes, wire::StreamId stream,
                      wire::Ticket ticket) {
  const uint64_t taken_bytes = TakenBytes(size_bytes);
  if (taken_bytes >= kLargeBytes || !Keep({address, taken_bytes, stream, ticket})) {
    return FreeLater(address);
  }
  FreeSurplus();
}

void ReturnKeptMemory() {
  for (;;) {
    uint64_t address;
    {
      Holding holding(&kept.lock);
      if (kept.blocks.count() == 0) return;
      const size_t last = kept.blocks.count() - 1;
      address = kept.blocks[last].address;
      kept.bytes -= kept.blocks[last].taken_bytes;
      kept.blocks.Remove(last);
    }
    FreeLater(address);
  }
}

bool QuotaHasRoom(uint64_t size_bytes) {
  const uint64_t taken_bytes = TakenBytes(size_bytes);
  // Small ones are cut of granules, and what is free of these is charged: only asking says whether there is enough.
  if (taken_bytes < kLargeBytes) return taken_bytes != 0;
  wire::MemInfo::Reply reply;
  // True if the session has ended: the request that follows reports that.
  return session.Call<wire::MemInfo>({}, &reply) != CUDA_SUCCESS || taken_bytes <= reply.free_bytes;
}

bool QuotaHasRoomAtLast(uint64_t size_bytes) {
  ReturnKeptMemory();
  return QuotaHasRoom(size_bytes);
}

}  // namespace gpuloom
