// SPDX-License-Identifier: Apache-2.0
// How much of the driver's queues the work of all sessions takes. A full queue blocks whoever hands it
// more (1,019 launches, measured), and streams beyond the 16 that the driver has queues for share one: a
// queue whose head waits fills up with what stands behind it, of all its streams. The ring thread must not
// come to stand there: it may be the one that the head waits for (docs/design/running-graphs.md).
//
// Owned by the loop; the sessions' stream sets count in it. Ring thread only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::executor {

class DriverRoom {
 public:
  // Commands take one place of a queue each; marks and waits for other streams take places besides. With
  // all exceptions below, what is at CUDA stays under what a single queue holds.
  static constexpr uint32_t kPlaces = 256;

  // Whether a session that has `mine` there may hand over more, to a stream that has `in_stream`. Nobody
  // can take all: each of the sessions at work has a part of its own, and an empty stream gets its
  // first command even where its session's others are full, because they may wait for it.
  bool Has(uint32_t mine, uint32_t in_stream) const {
    return taken_ < kPlaces || mine < kPlaces / sharers_ ||
           (in_stream == 0 && taken_ < 2 * kPlaces);
  }
  void Take(uint32_t places) { taken_ += places; }
  void Give(uint32_t places) { taken_ -= places; }

  void SetSharers(uint32_t sessions) { sharers_ = std::clamp(sessions, 1u, kPlaces); }
  uint32_t taken() const { return taken_; }

 private:
  uint32_t taken_ = 0;
  uint32_t sharers_ = 1;  // sessions at work
};

}  // namespace gpuloom::executor
