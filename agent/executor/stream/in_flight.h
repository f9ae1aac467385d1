// SPDX-License-Identifier: Apache-2.0
// What of one session's streams is at CUDA, and how much more may go there: places in the driver's queues, streams with
// work, and the marks by which it is seen that work is done. In which order commands go is StreamSet's to say.
//
//   HasRoom(stream) → Take(places), Count(stream, …) → AddMark(stream, …) → CompleteOldestMark(stream, …)
//
// Ring thread only; owned by the session's StreamSet. Nothing fails. What is still there when this ends gives its places
// back.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agent/executor/device/driver_room.h"
#include "agent/executor/stream/stream_state.h"

namespace gpuloom::executor {

inline constexpr uint32_t kMaxInFlight = 256;

// Loading a library waits until everything at CUDA has run (quiet.h), so we submit ahead only as much as takes
// about this long, by the stream's recent command durations. At least two commands are submitted in any case:
// the device must not wait for us. This is far longer than the loop ever sleeps with work at the device.
inline constexpr uint64_t kAheadNs = 8'000'000;
inline constexpr uint32_t kLeastInFlight = 2;
inline constexpr uint32_t kMostInFlight = 2048;  // where one launch of a chain stands for many

// Most streams of a session with work at CUDA at a time, and most marks there. The ring thread polls
// them in every round: each costs up to a microsecond. The device itself runs 128 kernels concurrently.
inline constexpr uint32_t kMaxStreamsAtDevice = 256;
inline constexpr uint32_t kMaxMarks = 2048;

class InFlight {
 public:
  // Both outlive this. `allocation_queues`: the hardware queues of all its sessions.
  InFlight(DriverRoom* room, uint32_t* allocation_queues)
      : room_(room), allocation_queues_(allocation_queues) {}
  ~InFlight() {
    room_->Give(queued_);
    room_->hardware().Give(allocation_queues_, held_);
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Whether CUDA may be given more of this stream at all. The last condition bounds how many streams
  // each round has to poll: a stream that is there already may go on.
  bool HasRoom(const Stream& stream) const {
    return !stream.busy && !(stream.drains && stream.AtDevice()) &&
           stream.in_flight < stream.max_in_flight && stream.queued < kMaxInFlight &&
           marks_ < kMaxMarks && room_->Has(queued_, stream.in_flight) &&
           (stream.in_flight != 0 || streams_at_device_ < kMaxStreamsAtDevice);
  }

  // Whether more work may go behind what the stream has at the device, or behind work of other streams that it waits for.
  bool MayHoldQueues(const Stream& stream, const QueueNeed& need) const {
    const uint32_t more = MoreQueues(stream, need);
    return more == 0 || room_->hardware().MayTake(*allocation_queues_, more);
  }
  bool MaySpareQueue(const Stream& stream) const {
    return stream.holds_queue || room_->hardware().MaySpare(*allocation_queues_);
  }
  // For the command with this ticket.
  void HoldQueues(Stream& stream, const QueueNeed& need, uint64_t ticket);

  // Places in the driver's queues.
  void Take(uint32_t places) {
    queued_ += places;
    room_->Take(places);
  }
  void Give(uint32_t places) {
    queued_ -= places;
    room_->Give(places);
  }

  // `commands` of the tenant's commands, the first with ticket `first` and the last with `ticket`,
  // are at CUDA and take `weight` places in its queue.
  void Count(Stream& stream, uint64_t first, uint64_t ticket, uint32_t commands, uint32_t weight);

  void AddMark(Stream& stream, PointRef point, uint64_t now_ns);
  // Call when the commands that end with the stream's oldest mark are done.
  void CompleteOldestMark(Stream& stream, uint64_t now_ns);
  // Streams with commands after their last mark; each is named once.
  std::vector<Stream*> TakeUnmarked();
  // Call before streams go that the tenant has destroyed and that are idle: they have no unmarked commands any more, but
  // stay listed until TakeUnmarked.
  void ForgetEnded();

 private:
  uint32_t MoreQueues(const Stream& stream, const QueueNeed& need) const;
  void GiveQueues(uint32_t queues) {
    held_ -= queues;
    room_->hardware().Give(allocation_queues_, queues);
  }

  DriverRoom* room_;
  uint32_t* allocation_queues_;
  uint32_t queued_ = 0;             // places taken by this
  uint32_t held_ = 0;               // hardware queues
  uint32_t streams_at_device_ = 0;  // with commands in flight
  uint32_t marks_ = 0;              // the marks of all streams
  std::vector<Stream*> unmarked_;   // have `unmarked` commands
  uint64_t last_order_ = 0;
};

}  // namespace gpuloom::executor
