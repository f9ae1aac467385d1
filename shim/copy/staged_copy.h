// SPDX-License-Identifier: Apache-2.0
// Copies between pageable memory and the device, in pieces that go through staging buffers, by the
// caller and the copy threads together: while the device copies some pieces, the threads copy
// others.
//
// What is copied is a Pieces:
//   using Piece = …;
//   bool Next(Piece*);                                       // one thread at a time
//   void Fill(const Piece&, uint8_t* staging);               // from pageable memory; any thread
//   void Empty(const Piece&, const uint8_t* staging);        // to pageable memory; any thread
//   CUresult Post(const Piece&, uint8_t* staging, wire::Ticket*);  // the device's part; any thread
//
// Pieces may be posted in a different order than Next returns them. The caller owns the Pieces: every function
// returns only when no thread uses them. The first failure ends the copy and is its result. Each object is for one
// copy: Run is called once, by one thread.
#pragma once

#include <cstdint>

#include "shim/copy/copy_threads.h"
#include "shim/copy/staging.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {

// From the first size on, helpers that happen to be awake take part; from the second they are
// woken.
inline constexpr uint64_t kHelpedBytes = 384u << 10;
inline constexpr uint64_t kWakingBytes = 1u << 20;

inline Help HelpFor(uint64_t size_bytes) {
  if (size_bytes < kHelpedBytes) return Help::kNone;
  return size_bytes < kWakingBytes ? Help::kAwake : Help::kWake;
}

// Which side of a copy is pageable.
enum class Staged : bool { kSource, kDestination };

// Copies from pageable memory. *ticket is that of the last piece.
template <typename Pieces>
class CopyIn {
 public:
  CopyIn(Pieces* pieces, wire::StreamId stream, StagingFor whose = StagingFor::kCallers)
      : pieces_(pieces), stream_(stream), whose_(whose) {}

  CUresult Run(Help help, wire::Ticket* ticket) {
    DoTogether([](void* self) { static_cast<CopyIn*>(self)->Part(); }, this, help);
    Holding holding(&lock_);
    *ticket = newest_;
    return result_;
  }

 private:
  void Part() {
    typename Pieces::Piece piece;
    while (Next(&piece)) {
      Staging staging{};
      CUresult result = TakeStaging(whose_, stream_, &staging);
      wire::Ticket ticket{0};
      if (result == CUDA_SUCCESS) {
        pieces_->Fill(piece, staging.data);
        result = pieces_->Post(piece, staging.data, &ticket);
        GiveStaging(staging, stream_, ticket);
      }
      Holding holding(&lock_);
      if (ticket > newest_) newest_ = ticket;
      if (result_ == CUDA_SUCCESS) result_ = result;
    }
  }

  bool Next(typename Pieces::Piece* piece) {
    Holding holding(&lock_);
    return result_ == CUDA_SUCCESS && pieces_->Next(piece);
  }

  Pieces* const pieces_;
  const wire::StreamId stream_;
  const StagingFor whose_;
  Lock lock_;  // also held for pieces_->Next
  wire::Ticket newest_ GPULOOM_GUARDED_BY(lock_){0};
  CUresult result_ GPULOOM_GUARDED_BY(lock_) = CUDA_SUCCESS;
};

// Copies to pageable memory, where everything has arrived when Run returns.
template <typename Pieces>
class CopyOut {
 public:
  CopyOut(Pieces* pieces, wire::StreamId stream, StagingFor whose = StagingFor::kCallers)
      : pieces_(pieces), stream_(stream), whose_(whose) {}

  CUresult Run(Help help) {
    DoTogether([](void* self) { static_cast<CopyOut*>(self)->Part(); }, this, help);
    Holding holding(&lock_);
    return result_;
  }

 private:
  struct Arriving {
    typename Pieces::Piece piece;
    Staging staging;
    wire::Ticket ticket;
  };

  // A thread may return while others still empty pieces; they take the rest.
  void Part() {
    Arriving mine;
    while (Take(&mine)) {
      const CUresult result = session.WaitFor(stream_, mine.ticket);
      if (result == CUDA_SUCCESS) pieces_->Empty(mine.piece, mine.staging.data);
      GiveStaging(mine.staging, stream_, mine.ticket);
      Holding holding(&lock_);
      --held_;
      if (result_ == CUDA_SUCCESS) result_ = result;
    }
  }

  // Posts as many pieces as there are buffers, and takes the oldest piece not yet taken.
  bool Take(Arriving* taken) {
    Holding holding(&lock_);
    while (result_ == CUDA_SUCCESS && more_ && count_ < kStagingBuffers) {
      Arriving next{};
      // A thread that holds a buffer never waits for another.
      if (held_ == 0) {
        result_ = TakeStaging(whose_, stream_, &next.staging);
        if (result_ != CUDA_SUCCESS) break;
      } else if (!TryTakeStaging(&next.staging)) {
        break;
      }
      more_ = pieces_->Next(&next.piece);
      if (more_) result_ = pieces_->Post(next.piece, next.staging.data, &next.ticket);
      if (!more_ || result_ != CUDA_SUCCESS) {
        GiveStaging(next.staging, stream_, wire::Ticket{0});
        break;
      }
      ++held_;
      arriving_[(first_ + count_++) % kStagingBuffers] = next;
    }
    if (count_ == 0) return false;
    *taken = arriving_[first_];
    first_ = (first_ + 1) % kStagingBuffers;
    --count_;
    return true;
  }

  Pieces* const pieces_;
  const wire::StreamId stream_;
  const StagingFor whose_;
  Lock lock_;  // also held for pieces_->Next
  // `count_` from `first_` on, oldest first.
  Arriving arriving_[kStagingBuffers] GPULOOM_GUARDED_BY(lock_) = {};
  uint32_t first_ GPULOOM_GUARDED_BY(lock_) = 0;
  uint32_t count_ GPULOOM_GUARDED_BY(lock_) = 0;
  uint32_t held_ GPULOOM_GUARDED_BY(lock_) = 0;  // buffers, including those being emptied
  bool more_ GPULOOM_GUARDED_BY(lock_) = true;
  CUresult result_ GPULOOM_GUARDED_BY(lock_) = CUDA_SUCCESS;
};

// Makes a copy that was queued, on the thread of host functions; returns when all of it has arrived. It fails only when
// the session has ended, which every call reports.
template <typename Pieces>
void CopyUntilArrived(Pieces* pieces, Staged staged, wire::StreamId stream, Help help) {
  wire::Ticket ticket{0};
  if (staged == Staged::kDestination) {
    (void)CopyOut(pieces, stream, StagingFor::kQueuedCopies).Run(help);
  } else if (CopyIn(pieces, stream, StagingFor::kQueuedCopies).Run(help, &ticket) == CUDA_SUCCESS) {
    (void)session.WaitFor(stream, ticket);
  }
}

}  // namespace gpuloom
