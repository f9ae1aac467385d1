// SPDX-License-Identifier: Apache-2.0
// Physical device memory by session: created, counted, returned. What an executor sends is untrusted: sizes are
// checked, and a memory id is looked up under the session it must belong to. Owned by MemoryGrants; the scheduler's thread only. The
// device must outlive it.
//
// A session's memory is in SessionMemory, owned by the session; call ReleaseAll before that ends.
#pragma once

#include <cstdint>
#include <map>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/spare_memory.h"

namespace gpuloom::scheduler {

struct SessionMemory {
  struct Piece {
    uint64_t handle;  // 0: charged only; the memory is held by the executor's driver
    uint64_t size_bytes;
  };
  std::map<uint64_t, Piece> pieces;  // by memory id

  uint64_t size_bytes() const {
    uint64_t sum = 0;
    for (const auto& [id, piece] : pieces) sum += piece.size_bytes;
    return sum;
  }
};

class MemoryBook {
 public:
  // Per session: more than programs with thousands of arrays, images and graphs need. Bounds what an executor that an
  // intruder has taken over can make the scheduler store.
  static constexpr size_t kMaxPieces = 1u << 20;

  explicit MemoryBook(Device* device) : device_(device), spare_(device) {}

  SpareMemory& spare() { return spare_; }

  struct Grant {
    uint32_t result;  // CUresult; the rest is valid when it is CUDA_SUCCESS
    uint64_t memory_id = 0;
    channel::UniqueFd memory;
  };
  // The answer to callers that may not have any memory: CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] static Grant NoGrant();
  // Creates memory and charges it to `usage`. CUDA_ERROR_OUT_OF_MEMORY when the quota or the device has no room,
  // CUDA_ERROR_INVALID_VALUE for a size that is not a positive multiple of the granule.
  [[nodiscard]] Grant Make(uint64_t size_bytes_untrusted, SessionMemory* session, Usage* usage);

  // Charges without creating memory: for what the executor's driver uses for a session. Any size but 0.
  [[nodiscard]] Grant Charge(uint64_t size_bytes_untrusted, SessionMemory* session, Usage* usage);

  // Returns false if the id is not the session's; then nothing is changed.
  [[nodiscard]] bool Return(uint64_t memory_id_untrusted, SessionMemory* session, Usage* usage);

  // Moves a piece and its charge. Returns false if it is not `from`'s; then nothing is changed.
  [[nodiscard]] static bool Transfer(uint64_t memory_id_untrusted, SessionMemory* from,
                                     Usage* from_usage, SessionMemory* to, Usage* to_usage);

  // Removes a session's pieces that are only charged, and returns their sizes by memory id. The charge stays.
  [[nodiscard]] static std::map<uint64_t, uint64_t> TakeCharged(SessionMemory* session);

  void ReleaseAll(SessionMemory* session, Usage* usage);

 private:
  Device* device_;
  SpareMemory spare_;
  uint64_t last_memory_id_ = 0;
};

}  // namespace gpuloom::scheduler
