#include "shim/staging.h"

#include <atomic>

#include "shim/futex.h"
#include "shim/host_arena.h"
#include "shim/session.h"

namespace gpuloom {
namespace {

struct Buffer {
  bool taken;
  wire::StreamId stream;
  wire::Ticket ticket;  // in use by the device until then
};

struct StagingBuffers {
  Lock lock;
  uint64_t address = 0;  // of the first; 0: not cut yet
  Buffer buffers[kStagingBuffers] = {};
  std::atomic<uint32_t> given{0};
};
constinit StagingBuffers staging_buffers;

CUresult CutLocked() {
  if (staging_buffers.address != 0) return CUDA_SUCCESS;
  return TakePinned(uint64_t{kStagingBytes} * kStagingBuffers, &staging_buffers.address);
}

bool IsFree(const Buffer& buffer) {
  return !buffer.taken && session.Done(buffer.stream, buffer.ticket);
}

Staging TakeLocked(uint32_t index) {
  staging_buffers.buffers[index].taken = true;
  return {index,
          reinterpret_cast<uint8_t*>(staging_buffers.address) + uint64_t{index} * kStagingBytes};
}

}  // namespace

CUresult TakeStaging(Staging* staging) {
  for (;;) {
    const uint32_t given = staging_buffers.given.load(std::memory_order_acquire);
    uint32_t oldest = kStagingBuffers;
    {
      Holding holding(&staging_buffers.lock);
      if (const CUresult result = CutLocked(); result != CUDA_SUCCESS) return result;
      for (uint32_t i = 0; i < kStagingBuffers; ++i) {
        const Buffer& buffer = staging_buffers.buffers[i];
        if (IsFree(buffer)) {
          *staging = TakeLocked(i);
          return CUDA_SUCCESS;
        }
        if (!buffer.taken &&
            (oldest == kStagingBuffers || buffer.ticket < staging_buffers.buffers[oldest].ticket)) {
          oldest = i;
        }
      }
      if (oldest != kStagingBuffers) *staging = TakeLocked(oldest);
    }
    if (oldest != kStagingBuffers) {
      const Buffer& buffer = staging_buffers.buffers[oldest];  // ours now
      const CUresult result = session.WaitFor(buffer.stream, buffer.ticket);
      if (result != CUDA_SUCCESS) GiveStaging(*staging, buffer.stream, buffer.ticket);
      return result;
    }
    FutexWait(&staging_buffers.given, given);
  }
}

bool TryTakeStaging(Staging* staging) {
  Holding holding(&staging_buffers.lock);
  if (CutLocked() != CUDA_SUCCESS) return false;
  for (uint32_t i = 0; i < kStagingBuffers; ++i) {
    if (!IsFree(staging_buffers.buffers[i])) continue;
    *staging = TakeLocked(i);
    return true;
  }
  return false;
}

void GiveStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket) {
  {
    Holding holding(&staging_buffers.lock);
    staging_buffers.buffers[staging.index] = {false, stream, ticket};
  }
  staging_buffers.given.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(&staging_buffers.given, 1);
}

}  // namespace gpuloom
