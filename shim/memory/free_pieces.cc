// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/free_pieces.h"

#include "shim/session/session.h"

namespace gpuloom {
namespace {

// How many free pieces of a bin are tried: many may still be in use by other streams.
constexpr int kLongestSearch = 64;

// Two bins for each power of two of steps. Every piece of a bin is larger than all pieces of lower
// bins, so a search goes upward from the bin of the wanted size, and only there may a piece be too
// small.
int BinOf(uint64_t size_bytes) {
  const uint64_t steps = size_bytes / kPieceStepBytes;
  const int power = 63 - __builtin_clzll(steps);
  const int half = power == 0 ? 0 : static_cast<int>(steps >> (power - 1)) & 1;
  const int bin = 2 * power + half;
  return bin < kPieceBins ? bin : kPieceBins - 1;
}

// Whether two free neighbours can become one piece. If both are in the same stream's use, the later
// use counts.
bool CanJoinLocked(Piece* a, Piece* b) GPULOOM_REQUIRES(pools.lock) {
  return (HasSettledLocked(a) && HasSettledLocked(b)) || a->stream == b->stream;
}

// Extends `left` by its right neighbour. Neither may be in a list.
void JoinLocked(Piece* left, Piece* right) GPULOOM_REQUIRES(pools.lock) {
  left->size_bytes += right->size_bytes;
  // Tickets are the session's, in one order for all streams. Where the streams differ, both pieces
  // have settled.
  if (right->ticket > left->ticket) {
    left->ticket = right->ticket;
    left->stream = right->stream;
  }
  left->after = right->after;
  if (right->after != nullptr) right->after->before = left;
  pools.pieces.Give(pools.lock, right);
}

}  // namespace

Piece* FindPieceLocked(Pool* pool, uint64_t size_bytes, wire::StreamId stream) {
  const bool from_others = pool->reuse[1] != 0;  // OPPORTUNISTIC
  for (int bin = BinOf(size_bytes); bin < kPieceBins; ++bin) {
    int looked = 0;
    for (Piece* piece = pool->free_pieces[bin]; piece != nullptr && looked < kLongestSearch;
         piece = piece->next, ++looked) {
      if (piece->size_bytes < size_bytes) continue;
      if (piece->stream == stream || piece->ticket == wire::Ticket{0} ||
          (from_others && HasSettledLocked(piece))) {
        return piece;
      }
    }
  }
  return nullptr;
}

Piece* CutPieceLocked(Piece* piece, uint64_t size_bytes) {
  UnlistPieceLocked(piece);
  if (piece->size_bytes != size_bytes) {
    Piece* rest = pools.pieces.Take(pools.lock);
    if (rest == nullptr) {
      ListPieceLocked(piece);
      return nullptr;
    }
    rest->free = true;
    // The rest is in use until then, too.
    rest->stream = piece->stream;
    rest->ticket = piece->ticket;
    rest->begin = piece->begin + size_bytes;
    rest->size_bytes = piece->size_bytes - size_bytes;
    rest->pool = piece->pool;
    rest->before = piece;
    rest->after = piece->after;
    if (rest->after != nullptr) rest->after->before = rest;
    piece->after = rest;
    piece->size_bytes = size_bytes;
    ListPieceLocked(rest);
  }
  piece->free = false;
  return piece;
}

void ListPieceLocked(Piece* piece) {
  Piece*& head = piece->pool->free_pieces[BinOf(piece->size_bytes)];
  piece->previous = nullptr;
  piece->next = head;
  if (head != nullptr) head->previous = piece;
  head = piece;
}

void UnlistPieceLocked(Piece* piece) {
  if (piece->previous != nullptr) {
    piece->previous->next = piece->next;
  } else {
    piece->pool->free_pieces[BinOf(piece->size_bytes)] = piece->next;
  }
  if (piece->next != nullptr) piece->next->previous = piece->previous;
}

void JoinAndListPieceLocked(Piece* piece) {
  if (Piece* right = piece->after; right != nullptr && right->free && CanJoinLocked(piece, right)) {
    UnlistPieceLocked(right);
    JoinLocked(piece, right);
  }
  if (Piece* left = piece->before; left != nullptr && left->free && CanJoinLocked(left, piece)) {
    UnlistPieceLocked(left);
    JoinLocked(left, piece);
    piece = left;
  }
  ListPieceLocked(piece);
}

void JoinSettledPiecesLocked(Pool* pool) {
  for (Piece*& head : pool->free_pieces) {
    for (Piece* piece = head; piece != nullptr;) {
      Piece* right = piece->after;
      if (right != nullptr && right->free && CanJoinLocked(piece, right)) {
        UnlistPieceLocked(piece);
        UnlistPieceLocked(right);
        JoinLocked(piece, right);
        ListPieceLocked(piece);
        piece = head;  // the list has changed
        continue;
      }
      piece = piece->next;
    }
  }
}

bool HasSettledLocked(Piece* piece) {
  if (piece->ticket != wire::Ticket{0} && session.Done(piece->stream, piece->ticket)) {
    piece->ticket = wire::Ticket{0};
  }
  return piece->ticket == wire::Ticket{0};
}

}  // namespace gpuloom
