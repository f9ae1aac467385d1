// SPDX-License-Identifier: Apache-2.0
// The streams of one session: the order in which their commands may be submitted to CUDA, and each
// stream's progress. Pure: commands are submitted to a StreamSink, which alone calls CUDA.
//
// Rules. Commands of a stream are submitted in ring order. A command is submitted when everything it depends
// on has been submitted (not: is done); the sink then makes the GPU wait for what is not done. Dependencies
// always have older tickets, so there are no cycles. The legacy default stream (id 0) waits for all blocking
// streams of this session and they for it, as in CUDA; other sessions are never involved. At most
// kMaxInFlight launches of a stream are at CUDA at a time, because a full driver queue (about 1,024 launches)
// would block the thread that serves everybody; the total over all streams of all sessions is limited too
// (driver_room.h). A command with a gate is submitted when everything before it is done and the gate is open;
// one of several parts goes part by part, each when the part before it is done and the gate is open again.
//
// Launches that can be grouped (Collect) gather at the end of their stream, in a chunk, while there
// are more in the ring. The chunk is closed, and submitted like one command, when its content says
// so, when something else comes after it or waits for it, and when the ring is empty (Flush). Until
// then its launches are enqueued and not submitted, as if they waited.
//
// What would wait at the device behind a kernel, a graph or another stream takes a hardware queue there, and goes only
// if one may be held (hardware_queues.h); by itself every stream's next command goes.
//
// While several sessions share the device's time, nothing is submitted that the sink does not allow (MaySubmit).
//
// Ring thread only; owned by the session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "agent/executor/device/driver_room.h"
#include "agent/executor/stream/in_flight.h"
#include "agent/executor/stream/stream_command.h"
#include "agent/executor/stream/stream_state.h"

namespace gpuloom::executor {

class Slice;
// For a command with more dependencies than this, the waits are submitted to CUDA beforehand, piece by piece.
inline constexpr size_t kMaxWaitsAtOnce = 32;

// Launches that take longer than this on average do not benefit from grouping.
inline constexpr uint64_t kSlowCommandNs = 20'000;

class StreamSink {
 public:
  // Submits `command` to CUDA. Never fails here: errors become the tenant's asynchronous errors.
  virtual void Submit(Stream& stream, StreamCommand& command) = 0;
  // Makes the stream's next work wait on the GPU for this dependency, which has been submitted.
  // Submit does this for the dependencies still in its command.
  virtual void WaitFor(Stream& stream, const Dependency& dependency) = 0;
  // Returns false if `command` needs something that is in use; call again later.
  virtual bool HasRoom(const Stream& stream, const StreamCommand& command) const = 0;
  // Returns false while it is others' turn; call again later.
  virtual bool MaySubmit(const Stream& stream, const StreamCommand& command) const = 0;
  virtual bool MaySubmit(const Stream& stream, const Chunk& chunk) const = 0;
  // Of a command that would wait at the device.
  virtual QueueNeed QueuesFor(const StreamCommand& command) const = 0;

 protected:
  ~StreamSink() = default;
};

class StreamSet {
 public:
  // While *hold is true nothing is submitted. `room` and `allocation_queues` (in_flight.h) outlive this.
  StreamSet(StreamSink* sink, const bool* hold, DriverRoom* room, uint32_t* allocation_queues)
      : sink_(sink),
        hold_(hold),
        in_flight_(room, allocation_queues),
        streams_(wire::kMaxStreams) {}
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  // Returns nullptr if the id is out of range or in use. `ticket` is the creating command's:
  // dependencies of older commands on an earlier stream with this id count as done.
  Stream* Add(wire::StreamId id_untrusted, bool blocking, int priority, wire::Ticket ticket);
  // A stream that accepts commands, or nullptr.
  Stream* Find(wire::StreamId id_untrusted) const;
  // Like Find, but includes streams that the tenant has destroyed but that still have commands.
  Stream* FindAny(wire::StreamId id_untrusted) const;

  // Orders the command as CUDA's rules demand and submits it, immediately if nothing is before it.
  // Tickets increase from call to call.
  void Enqueue(Stream& stream, StreamCommand&& command);

  // Returns true if the stream's launches may benefit from grouping.
  static bool Gains(const Stream& stream) { return stream.command_ns <= kSlowCommandNs; }
  // Like Enqueue, for a launch that may be grouped with others.
  void Collect(Stream& stream, wire::Ticket ticket, const ChunkNode& node,
               std::span<const uint8_t> params, const std::shared_ptr<const void>& library);

  // Closes the chunks that no further launch may join. With `all` false the chunk that has grown
  // last stays open.
  void Flush(bool all);
  // Reuses a chunk that the sink has submitted.
  void Recycle(ChunkPtr chunk);

  // What the stream was busy with is at CUDA, where it has this weight.
  void OnSubmitted(Stream& stream, uint32_t weight);

  // Submits what has become ready, stream by stream in turn. Returns true if there was anything. With `one_each` it
  // takes one command of each stream at a time, and the next call continues after the last one.
  bool SubmitWaiting(Slice* slice, bool one_each = false);

  // A slice may be over before all waiting streams have been looked at. Returns true if all have been since a command
  // last went, or since CheckAgain: then calling SubmitWaiting again is of no use until something else has happened.
  bool CheckedAll() const { return checked_in_vain_ >= waiting_.size(); }
  void CheckAgain() { checked_in_vain_ = 0; }

  // Calls `command` or `chunk` with each stream and what would be submitted next in it if its turn allowed it. If there
  // are many streams it looks at some of them, and at the next ones when called again.
  template <typename OnCommand, typename OnChunk>
  void ForEachReady(OnCommand&& command, OnChunk&& chunk) {
    for (size_t looked = 0; looked < std::min(waiting_.size(), kMaxScanned); ++looked) {
      const Stream* stream = waiting_[ready_turn_++ % waiting_.size()];
      if (!stream->waiting.empty() && IsReady(*stream, stream->waiting.front())) {
        command(*stream, stream->waiting.front());
      }
    }
    for (size_t looked = 0; looked < std::min(open_.size(), kMaxScanned); ++looked) {
      const Stream* stream = open_[open_turn_++ % open_.size()];
      if (MayClose(*stream)) chunk(*stream, *stream->open);
    }
  }
  static constexpr size_t kMaxScanned = 64;

  // Returns true if ForEachReady looks at all of them each time.
  bool ScansAll() const { return waiting_.size() <= kMaxScanned && open_.size() <= kMaxScanned; }

  // As InFlight's.
  void CompleteOldestMark(Stream& stream, uint64_t now_ns) {
    in_flight_.CompleteOldestMark(stream, now_ns);
  }
  void AddMark(Stream& stream, PointRef point, uint64_t now_ns) {
    in_flight_.AddMark(stream, std::move(point), now_ns);
  }
  std::vector<Stream*> TakeUnmarked() { return in_flight_.TakeUnmarked(); }
  // For what the sink itself puts behind a stream's work, and can do without. Returns false if it has to.
  bool HoldQueue(Stream& stream) {
    if (!stream.HoldsUp()) return true;
    if (!in_flight_.MaySpareQueue(stream)) return false;
    in_flight_.HoldQueues(stream, {}, stream.submitted);
    return true;
  }

  // Drops a piece of what has not been submitted; returns true if that was the last. After the first call nothing may
  // be enqueued.
  [[nodiscard]] bool DropWaiting();
  // Removes idle streams from the active list, and returns those that the tenant has destroyed.
  std::vector<std::unique_ptr<Stream>> TakeEnded();

  // At session end, when all are idle: some stream, or nullptr. After the first call streams may not be queried.
  std::unique_ptr<Stream> TakeAny();

  // Everything with an older ticket than this is done; UINT64_MAX if everything is. As exact as the marks are.
  uint64_t OldestUnfinished() const;
  // The same of what is at CUDA or on its way there; UINT64_MAX if nothing is.
  uint64_t OldestAtDevice() const;

  bool Idle() const { return active_.empty(); }
  // Returns true if something is at CUDA and not known to be complete.
  bool AtDevice() const;
  // The same of work for the kernels' engine.
  bool HasKernelsAtDevice() const;
  // Recent command duration of the stream at CUDA where commands take longest.
  uint64_t SlowestCommandNs() const;
  size_t waiting_commands() const { return waiting_commands_; }
  size_t waiting_bytes() const { return waiting_bytes_; }
  // Streams with commands that are not done.
  const std::vector<Stream*>& active() const { return active_; }

 private:
  void AddDependencies(Stream& stream, std::vector<Dependency>* dependencies);
  // Closes the chunks that `dependencies` wait for.
  void CloseBefore(const std::vector<Dependency>& dependencies);
  void Close(Stream& stream);
  void SetActive(Stream& stream);
  void Wait(Stream& stream, StreamCommand&& command);
  bool HasRoom(const Stream& stream) const { return !*hold_ && in_flight_.HasRoom(stream); }
  bool AreSubmitted(const std::vector<Dependency>& dependencies) const;
  bool IsReady(const Stream& stream, const StreamCommand& command) const;
  bool CanSubmit(const Stream& stream, const StreamCommand& command) const {
    return IsReady(stream, command) && sink_->MaySubmit(stream, command);
  }
  // Whether the stream's open chunk could be submitted.
  bool MayClose(const Stream& stream) const {
    return stream.open != nullptr && stream.waiting.empty() && HasRoom(stream) &&
           AreSubmitted(stream.open_dependencies) &&
           (!WouldWait(stream, stream.open_dependencies) || in_flight_.MayHoldQueues(stream, {}));
  }
  bool IsSubmitted(const Dependency& dependency) const;
  bool IsDone(const Dependency& dependency) const;
  // Whether what comes next would wait at the device.
  bool WouldWait(const Stream& stream, const std::vector<Dependency>& dependencies) const;
  // Call before the command is submitted.
  void NoteQueue(Stream& stream, const StreamCommand& command);
  void SubmitWaitsEarly(Stream& stream);
  bool PassesGate(const Stream& stream, const StreamCommand& command) const;
  void SubmitNow(Stream& stream, StreamCommand& command);
  // For parts other than the last: the command stays at the head of its stream.
  void SubmitPart(Stream& stream, StreamCommand& command);

  StreamSink* sink_;
  const bool* hold_;
  InFlight in_flight_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> active_;
  std::vector<Stream*> waiting_;              // have commands in `waiting`
  std::vector<Stream*> open_;                 // have `open`, or had it
  Stream* grown_ = nullptr;                   // the last to collect
  std::vector<Dependency> new_dependencies_;  // of the next launch
  std::vector<ChunkPtr> idle_chunks_;
  std::vector<Stream*> blocking_since_legacy_;  // blocking streams used since legacy's last command
  size_t waiting_commands_ = 0;
  size_t waiting_bytes_ = 0;
  size_t turn_ = 0;             // index in `waiting_`: where SubmitWaiting begins
  size_t checked_in_vain_ = 0;  // by SubmitWaiting, at so many in a row
  size_t ready_turn_ = 0;       // as turn_, for ForEachReady
  size_t open_turn_ = 0;        // the same in `open_`
};

}  // namespace gpuloom::executor
