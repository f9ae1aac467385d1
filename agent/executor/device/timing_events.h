// SPDX-License-Identifier: Apache-2.0
// Which streams have events with timing at the device that have not happened. Such an event waits for all that is before
// it in its stream, and keeps other streams' events with timing waiting for as long, whosever they are: one stream in
// sixteen for each such event (H200, 580.159.04; docs/design/start-up.md#events-with-timing). Events without timing, and
// all other work, pass. So one allocation has events with timing there at a time, in a few of its streams; what others
// record meanwhile has none, and gets the time at which the executor saw it happen. A graph's events always have it: such
// graphs may have to wait for others' events.
//
//   MayRecord or MayLaunch → Take(&mine, &of_stream) → Give(&mine, &of_stream)
//
// `mine`: streams of the allocation that have any; `of_stream`: events of that stream. Owned by DriverRoom. Ring thread
// only; nothing fails.
#pragma once

#include <cstdint>

namespace gpuloom::executor {

class TimingEvents {
 public:
  bool any() const { return streams_ != 0; }
  bool MayRecord(uint32_t mine, uint32_t of_stream) const {
    return streams_ == mine && (of_stream != 0 || mine < kMostStreams);
  }
  // A graph that records events. Each allocation may have one such stream.
  bool MayLaunch(uint32_t mine, uint32_t of_stream) const {
    return of_stream != 0 || mine == 0 || (mine < kMostStreams && streams_ < kMostStreams);
  }
  void Take(uint32_t* mine, uint32_t* of_stream) {
    if ((*of_stream)++ != 0) return;
    ++*mine;
    ++streams_;
  }
  void Give(uint32_t* mine, uint32_t* of_stream) {
    if (--*of_stream != 0) return;
    --*mine;
    --streams_;
  }

 private:
  // Beside 16 such streams nothing at all ran, beside 8 all work without such events did.
  static constexpr uint32_t kMostStreams = 6;

  uint32_t streams_ = 0;
};

}  // namespace gpuloom::executor
