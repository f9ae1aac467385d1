// SPDX-License-Identifier: Apache-2.0
// Whose a CUDA stream was at a time, by CUPTI's number of it: the streams of this executor pass from session to session.
// Filled by the ring thread, asked by whoever reads CUPTI's records. Bounded: of one stream the last owners are known, and
// beyond kMostTracedStreams no stream's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {

struct StreamOwner {
  uint64_t session_id;
  uint32_t stream;  // the session's number of it
};

// Programs that make and destroy streams without end are not followed for ever.
inline constexpr size_t kMostTracedStreams = 64u << 10;

class StreamOwners {
 public:
  void Clear() {
    const MutexLock lock(mutex_);
    owners_.clear();
  }
  // A stream is idle when it passes to another.
  void Add(uint32_t stream_id, const StreamOwner& owner, uint64_t since_ns) {
    const MutexLock lock(mutex_);
    if (owners_.size() == kMostTracedStreams && !owners_.contains(stream_id)) return;
    std::deque<Owned>& all = owners_[stream_id];
    if (all.size() == kMostKnown) all.pop_front();
    all.push_back({owner, since_ns});
  }
  // Who had it when this began. What began before the first known owner is that one's: it had the stream when the trace began.
  std::optional<StreamOwner> Find(uint32_t stream_id, uint64_t begin_ns) const {
    const MutexLock lock(mutex_);
    const auto it = owners_.find(stream_id);
    if (it == owners_.end()) return std::nullopt;
    const std::deque<Owned>& all = it->second;
    auto owned = all.rbegin();
    while (owned + 1 != all.rend() && owned->since_ns > begin_ns) ++owned;
    return owned->owner;
  }

 private:
  static constexpr size_t kMostKnown = 16;
  struct Owned {
    StreamOwner owner;
    uint64_t since_ns;
  };

  mutable Mutex mutex_;
  std::unordered_map<uint32_t, std::deque<Owned>> owners_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::executor
