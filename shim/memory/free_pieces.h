// SPDX-License-Identifier: Apache-2.0
// How a pool's chunks are cut into pieces, and which free piece is used next. Free pieces are listed by size; neighbours
// that the same streams may use become one piece again. A piece that a stream has freed is in use there until its ticket:
// that stream may use it at once, others when it has settled. For pool.cc only, which decides when a pool grows and
// shrinks; pieces of imported pools are never here.
//
// Nothing here sends a message or waits. The caller holds pools.lock.
#pragma once

#include <cstdint>

#include "shim/memory/pool_table.h"

namespace gpuloom {

// Sizes and addresses of pieces are multiples of this, which also suits textures
// (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT is 512 on all current devices).
inline constexpr uint64_t kPieceStepBytes = 512;

// A free piece of at least this size that work of `stream` may use without waiting, or null. The
// stream's own pieces may still be in use there: what comes next in it comes after that.
[[nodiscard]] Piece* FindPieceLocked(Pool* pool, uint64_t size_bytes, wire::StreamId stream)
    GPULOOM_REQUIRES(pools.lock);
// Cuts off the beginning of a free piece, for use. Returns nullptr if there is no memory for
// describing the rest. Until it is freed the piece keeps its old ticket, which nobody looks at.
[[nodiscard]] Piece* CutPieceLocked(Piece* piece, uint64_t size_bytes) GPULOOM_REQUIRES(pools.lock);

// For a free piece that is in no list.
void ListPieceLocked(Piece* piece) GPULOOM_REQUIRES(pools.lock);
void UnlistPieceLocked(Piece* piece) GPULOOM_REQUIRES(pools.lock);
// Joins a free piece, which is in no list, with its neighbours, and lists the result.
void JoinAndListPieceLocked(Piece* piece) GPULOOM_REQUIRES(pools.lock);
// Joins pieces that have settled since they were freed. It looks at each free piece, and again at a
// bin's beginning after each join: for calls that would otherwise ask the executor for memory or
// return some.
void JoinSettledPiecesLocked(Pool* pool) GPULOOM_REQUIRES(pools.lock);

// Returns true if no stream uses a free piece any more. Forgets the ticket then, which also spares
// the next look.
[[nodiscard]] bool HasSettledLocked(Piece* piece) GPULOOM_REQUIRES(pools.lock);
// Only whole chunks can be returned.
inline bool IsWholeChunk(const Piece* piece) {
  return piece->before == nullptr && piece->after == nullptr;
}

}  // namespace gpuloom
