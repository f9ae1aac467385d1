// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/staging.h"

#include <limits.h>
#include <time.h>

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
  Lock cut_lock;  // taken before the other
  Lock lock;
  uint64_t address GPULOOM_GUARDED_BY(lock) = 0;  // of the first buffer; 0: none allocated yet
  uint32_t count GPULOOM_GUARDED_BY(lock) = 0;
  Buffer buffers[kCount] GPULOOM_GUARDED_BY(lock) = {};

  // Once. Asks the executor without the lock, which queued copies need, too.
  CUresult Cut() GPULOOM_EXCLUDES(cut_lock) {
    if (IsCut()) return CUDA_SUCCESS;
    Holding cutting(&cut_lock);
    if (IsCut()) return CUDA_SUCCESS;
    uint64_t begin = 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t wanted = kCount; wanted >= kLeast; wanted /= 2) {
      result = TakePinned(uint64_t{kBytes} * wanted, &begin);
      if (result == CUDA_SUCCESS) {
        Holding holding(&lock);
        address = begin;
        count = wanted;
      }
      if (result != CUDA_ERROR_OUT_OF_MEMORY) break;
    }
    return result;
  }
  bool IsCut() {
    Holding holding(&lock);
    return address != 0;
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
  // Takes the one that the stream will have finished with first; *used says what to wait for.
  bool TakeOldestLocked(wire::StreamId stream, Staging* staging, Buffer* used)
      GPULOOM_REQUIRES(lock) {
    const Buffer* oldest = nullptr;
    for (uint32_t i = 0; i < count; ++i) {
      const Buffer& buffer = buffers[i];
      if (buffer.taken || buffer.stream != stream) continue;
      if (oldest == nullptr || buffer.ticket < oldest->ticket) oldest = &buffer;
    }
    if (oldest == nullptr) return false;
    *used = *oldest;
    *staging = TakeLocked(static_cast<uint32_t>(oldest - buffers));
    return true;
  }
};
// The small ones are all made or none: without them copies travel in their commands.
constinit Buffers<kStagingBuffers, 1, kStagingBytes> large;
constinit Buffers<kSmallStagingBuffers, kSmallStagingBuffers, kSmallStagingBytes> small;
// Its index is kStagingBuffers.
constinit Buffers<1, 1, kStagingBytes> of_queued_copies;
// Of one that is a caller's own.
constexpr uint32_t kOwnIndex = kStagingBuffers + 1;

// For threads that wait for a buffer which another thread, not the device, is using.
constinit std::atomic<uint32_t> given{0};
constinit std::atomic<uint32_t> waiters{0};

// Also takes a buffer that the stream still uses, and says so in *used.
bool TakeAny(StagingFor whose, wire::StreamId stream, Staging* staging, Buffer* used) {
  if (whose == StagingFor::kCallers) {
    Holding holding(&large.lock);
    return large.TryTakeLocked(staging) || large.TakeOldestLocked(stream, staging, used);
  }
  if (TryTakeStaging(staging)) return true;
  Holding holding(&of_queued_copies.lock);
  if (!of_queued_copies.TryTakeLocked(staging) &&
      !of_queued_copies.TakeOldestLocked(stream, staging, used)) {
    return false;
  }
  staging->index = kStagingBuffers;
  return true;
}

// Beyond the limit of pinned memory there is none, and the caller looks again and again for any other.
bool MakeOwn(Staging* staging) {
  uint64_t address = 0;
  if (TakePinned(kStagingBytes, &address) != CUDA_SUCCESS) return false;
  *staging = {kOwnIndex, reinterpret_cast<uint8_t*>(address)};
  return true;
}

void Nap() {
  constexpr long kNapNs = 100'000;
  const timespec nap = {0, kNapNs};
  nanosleep(&nap, nullptr);
}

}  // namespace

CUresult MakeStagingForQueuedCopies() {
  CUDA_RETURN_IF_ERROR(of_queued_copies.Cut());
  // Without these queued copies are only slower.
  (void)large.Cut();
  return CUDA_SUCCESS;
}

CUresult TakeStaging(StagingFor whose, wire::StreamId stream, Staging* staging) {
  const bool of_caller = whose == StagingFor::kCallers;
  if (of_caller) CUDA_RETURN_IF_ERROR(large.Cut());
  for (;;) {
    // Before the look, so that a buffer which is given back after it ends the sleep at once.
    const uint32_t seen = given.load(std::memory_order_seq_cst);
    Buffer used = {};
    if (TakeAny(whose, stream, staging, &used)) {
      const CUresult result = session.WaitFor(used.stream, used.ticket);
      if (result != CUDA_SUCCESS) GiveStaging(*staging, used.stream, used.ticket);
      return result;
    }
    if (of_caller) {
      if (MakeOwn(staging)) return CUDA_SUCCESS;
      CUDA_RETURN_IF_ERROR(session.HealthOfPoller());
      Nap();
      continue;
    }
    waiters.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(&given, seen);
    waiters.fetch_sub(1, std::memory_order_seq_cst);
  }
}

bool TryTakeStaging(Staging* staging) {
  Holding holding(&large.lock);
  return large.TryTakeLocked(staging);
}

void GiveStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket) {
  if (staging.index == kOwnIndex) {
    (void)session.WaitFor(stream,
                          ticket);  // fails when the session has ended, and the device with it
    return GivePinned(reinterpret_cast<uint64_t>(staging.data));
  }
  const bool any_may_take = staging.index != kStagingBuffers;
  if (any_may_take) {
    Holding holding(&large.lock);
    large.buffers[staging.index] = {false, stream, ticket};
  } else {
    Holding holding(&of_queued_copies.lock);
    of_queued_copies.buffers[0] = {false, stream, ticket};
  }
  given.fetch_add(1, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) FutexWake(&given, any_may_take ? 1 : INT_MAX);
}

bool TryTakeSmallStaging(Staging* staging) {
  {
    Holding holding(&small.lock);
    if (small.address != 0) return small.TryTakeLocked(staging);
  }
  if (small.Cut() != CUDA_SUCCESS) return false;
  Holding holding(&small.lock);
  return small.TryTakeLocked(staging);
}

void GiveSmallStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket) {
  Holding holding(&small.lock);
  small.buffers[staging.index] = {false, stream, ticket};
}

}  // namespace gpuloom
