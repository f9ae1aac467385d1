// SPDX-License-Identifier: Apache-2.0
// Which session had a CUDA stream at which time, by CUPTI's number for the stream: the streams of
// this executor pass from session to session. Also decides which records belong to a trace for one
// allocation. Filled by the ring thread, read by the thread that reads CUPTI's records; safe from
// any thread. Bounded: only the latest owners of a stream are known, and only kMostTracedStreams
// streams.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {

struct StreamOwner {
  uint64_t session_id;
  uint64_t allocation_id;  // the session's; 0: the executor itself
  uint32_t stream;         // the session's number of it
};

// Programs that create and destroy streams without end are followed only this far.
inline constexpr size_t kMostTracedStreams = 64u << 10;

class StreamOwners {
 public:
  // A trace begins: for this allocation alone, or, if it is 0, for all.
  void Begin(uint64_t allocation_id) {
    const MutexLock lock(mutex_);
    owners_.clear();
    only_ = allocation_id;
    others_since_ns_ = UINT64_MAX;
  }
  // A stream is idle when it passes to another session. `id` is empty if CUPTI does not report its
  // number.
  void Add(std::optional<uint32_t> id, const StreamOwner& owner, uint64_t since_ns) {
    const MutexLock lock(mutex_);
    if (owner.allocation_id != 0 && owner.allocation_id != only_) {
      others_since_ns_ = std::min(others_since_ns_, since_ns);
    }
    if (!id) return;
    const uint32_t stream_id = *id;
    if (owners_.size() == kMostTracedStreams && !owners_.contains(stream_id)) return;
    std::deque<Owned>& all = owners_[stream_id];
    if (all.size() == kMostKnown) all.pop_front();
    all.push_back({owner, since_ns});
  }
  // The stream's owner at `begin_ns`. Before its first known owner that one counts: it had the
  // stream when the trace began.
  std::optional<StreamOwner> Find(uint32_t stream_id, uint64_t begin_ns) const {
    const MutexLock lock(mutex_);
    const auto it = owners_.find(stream_id);
    if (it == owners_.end()) return std::nullopt;
    const std::deque<Owned>& all = it->second;
    auto owned = all.rbegin();
    while (owned + 1 != all.rend() && owned->since_ns > begin_ns) ++owned;
    return owned->owner;
  }
  // Whether a record of this owner, which began at `begin_ns`, belongs to the trace. A record
  // without an owner, for example of graph nodes in CUDA's own streams, may belong to any session
  // that has streams.
  bool Wants(const std::optional<StreamOwner>& owner, uint64_t begin_ns) const {
    const MutexLock lock(mutex_);
    if (only_ == 0) return true;
    return owner ? owner->allocation_id == only_ : begin_ns < others_since_ns_;
  }
  // Whether the trace is for one allocation.
  bool is_own() const {
    const MutexLock lock(mutex_);
    return only_ != 0;
  }

 private:
  static constexpr size_t kMostKnown = 16;
  struct Owned {
    StreamOwner owner;
    uint64_t since_ns;
  };

  mutable Mutex mutex_;
  uint64_t only_ GPULOOM_GUARDED_BY(mutex_) = 0;
  // Since when others have streams.
  uint64_t others_since_ns_ GPULOOM_GUARDED_BY(mutex_) = UINT64_MAX;
  std::unordered_map<uint32_t, std::deque<Owned>> owners_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::executor
