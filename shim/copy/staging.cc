// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/staging.h"

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/host_arena.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Buffer {
  bool taken;
  wire::StreamId stream;
  wire::Ticket ticket;  // the device uses it until then
};

// If pinned memory is short, a half, a quarter, … of kCount are made, down to kLeast.
template <uint32_t kCount, uint32_t kLeast, uint32_t kBytes>
struct Buffers {
  Lock lock;
  uint64_t address GPULOOM_GUARDED_BY(lock) = 0;  // of the first buffer; 0: none allocated yet
  uint32_t count GPULOOM_GUARDED_BY(lock) = 0;
  Buffer buffers[kCount] GPULOOM_GUARDED_BY(lock) = {};

  CUresult CutLocked() GPULOOM_REQUIRES(lock) {
    if (address != 0) return CUDA_SUCCESS;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (count = kCount; count >= kLeast; count /= 2) {
      result = TakePinned(uint64_t{kBytes} * count, &address);
      if (result != CUDA_ERROR_OUT_OF_MEMORY) break;
    }
    return result;
  }
  Staging TakeLocked(uint32_t index) GPULOOM_REQUIRES(lock) {
    buffers[index].taken = true;
    return {index, reinterpret_cast<uint8_t*>(address) + uint64_t{index} * kBytes};
  }
  // Takes the first free one, because those in use most often stay in the cache.
  bool TryTakeLocked(Staging* staging) GPULOOM_REQUIRES(lock) {
    for (uint32_t i = 0; i < count; ++i) {
      const Buffer& buffer = buffers[i];
      if (buffer.taken || !session.Done(buffer.stream, buffer.ticket)) continue;
      *staging = TakeLocked(i);
      return true;
    }
    return false;
  }
};
// The small ones are all made or none: without them copies travel in their commands.
constinit Buffers<kStagingBuffers, 1, kStagingBytes> large;
constinit Buffers<kSmallStagingBuffers, kSmallStagingBuffers, kSmallStagingBytes> small;

// For threads that wait for a buffer which another thread, not the device, is using.
constinit std::atomic<uint32_t> given{0};
constinit std::atomic<uint32_t> waiters{0};

// The buffer that the device has used for longest, or kStagingBuffers if there is none.
uint32_t OldestLocked() GPULOOM_REQUIRES(large.lock) {
  uint32_t oldest = kStagingBuffers;
  for (uint32_t i = 0; i < large.count; ++i) {
    if (large.buffers[i].taken) continue;
    if (oldest == kStagingBuffers || large.buffers[i].ticket < large.buffers[oldest].ticket) {
      oldest = i;
    }
  }
  return oldest;
}

}  // namespace

// If no buffer is free, takes the one that the device will have finished with first, and waits for
// the device; if threads hold all of them, waits until one gives one back.
CUresult TakeStaging(Staging* staging) {
  for (;;) {
    // Before the look, so that a buffer which is given back after it ends the sleep at once.
    const uint32_t seen = given.load(std::memory_order_seq_cst);
    uint32_t oldest;
    Buffer buffer = {};
    {
      Holding holding(&large.lock);
      CUDA_RETURN_IF_ERROR(large.CutLocked());
      if (large.TryTakeLocked(staging)) return CUDA_SUCCESS;
      oldest = OldestLocked();
      if (oldest != kStagingBuffers) {
        buffer = large.buffers[oldest];
        *staging = large.TakeLocked(oldest);
      }
    }
    if (oldest != kStagingBuffers) {
      const CUresult result = session.WaitFor(buffer.stream, buffer.ticket);
      if (result != CUDA_SUCCESS) GiveStaging(*staging, buffer.stream, buffer.ticket);
      return result;
    }
    waiters.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(&given, seen);
    waiters.fetch_sub(1, std::memory_order_seq_cst);
  }
}

bool TryTakeStaging(Staging* staging) {
  Holding holding(&large.lock);
  return large.CutLocked() == CUDA_SUCCESS && large.TryTakeLocked(staging);
}

void GiveStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket) {
  {
    Holding holding(&large.lock);
    large.buffers[staging.index] = {false, stream, ticket};
  }
  given.fetch_add(1, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) FutexWake(&given, 1);
}

bool TryTakeSmallStaging(Staging* staging) {
  Holding holding(&small.lock);
  return small.CutLocked() == CUDA_SUCCESS && small.TryTakeLocked(staging);
}

void GiveSmallStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket) {
  Holding holding(&small.lock);
  small.buffers[staging.index] = {false, stream, ticket};
}

}  // namespace gpuloom
