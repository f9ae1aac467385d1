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
// While several sessions share the device's time, nothing is submitted that the sink does not allow (MaySubmit).
//
// Ring thread only; owned by the session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "agent/arbiter/cut_point.h"
#include "agent/executor/device/driver_room.h"
#include "agent/executor/stream/stream_command.h"
#include "agent/executor/stream/tally.h"

namespace gpuloom::executor {

class Slice;
struct Chain;
struct GreenContext;

inline constexpr uint32_t kMaxInFlight = 256;

// Loading a library waits until everything at CUDA has run (quiet.h), so we submit ahead only as much as takes
// about this long, by the stream's recent command durations. At least two commands are submitted in any case:
// the device must not wait for us. This is far longer than the loop ever sleeps with work at the device.
inline constexpr uint64_t kAheadNs = 8'000'000;
inline constexpr uint32_t kFirstInFlight = 32;  // until a stream's command duration is known
inline constexpr uint32_t kLeastInFlight = 2;
inline constexpr uint32_t kMostInFlight = 2048;  // where one launch of a chain stands for many

// Most streams of a session with work at CUDA at a time, and most marks there. The ring thread polls
// them in every round: each costs up to a microsecond. The device itself runs 128 kernels concurrently.
inline constexpr uint32_t kMaxStreamsAtDevice = 256;
inline constexpr uint32_t kMaxMarks = 2048;

// Beyond these the oldest are forgotten; they only serve to find the stream that has waited longest.
inline constexpr size_t kMaxForeignWaits = 64;

// For a command with more dependencies than this, the waits are submitted to CUDA beforehand, piece by piece.
inline constexpr size_t kMaxWaitsAtOnce = 32;

// Launches that take longer than this on average do not benefit from grouping.
inline constexpr uint64_t kSlowCommandNs = 20'000;

struct Mark {
  PointRef point;
  uint32_t commands;      // commands that end with this mark
  uint32_t weight;        // of these commands
  uint64_t first_ticket;  // of these commands
  uint64_t made_ns;
  uint64_t order;  // among the session's marks: lower than that of any mark waiting for this one
  Tally tally;     // of them
};

// Pinned memory that holds a command's payload until the command is done.
struct Staged {
  uint64_t ticket;
  uint8_t* copy;
  uint64_t size_bytes;
};

// A graph at CUDA, and the points that complete with it.
struct GraphRun {
  uint64_t ticket;
  std::shared_ptr<Graph> graph;
  std::vector<PointRef> points;
};

// A chain at CUDA.
struct ChainRun {
  uint64_t ticket;
  std::shared_ptr<Chain> chain;
};

// Device memory per stream, measured: 34 MiB for 64 of them. A session's first few come out of the
// reserve, so that a program with a stream or two has its whole quota. Ids are assigned from the lowest.
inline constexpr uint64_t kStreamTakesBytes = 544u << 10;
inline constexpr uint32_t kFreeStreams = 8;

// Read by the sink; modified by StreamSet only, except fields that say otherwise.
struct Stream {
  wire::StreamId id{};
  bool blocking = true;
  std::shared_ptr<GreenContext> green;  // null: it belongs to the primary context
  bool destroyed = false;   // the tenant has destroyed it; it is removed when its commands are done
  int priority = 0;         // as its program requested
  CUstream cuda = nullptr;  // created by the sink on first use
  CUcontext context = nullptr;  // the sink's, of `cuda`: where its kernels run
  int cuda_priority = 0;        // the sink's, of `cuda`: in its class's band
  uint32_t terms = 0;           // the sink's: TimeSharing::changes() when that was looked at
  bool drains = false;  // the sink's: nothing more is submitted until CUDA has nothing of it
  bool waits_enqueued = false;  // the sink's: CUDA makes it wait, and no work came after that
  std::shared_ptr<const void> charge;  // the sink's, for `cuda`; null for a session's first ones
  uint64_t enqueued = 0;               // newest ticket
  uint64_t submitted = 0;              // newest ticket that CUDA has
  uint64_t completed = 0;              // newest ticket that is done
  std::deque<StreamCommand> waiting;
  ChunkPtr open;  // after `waiting`; never empty
  std::vector<Dependency> open_dependencies;
  std::deque<Mark> marks;       // oldest first
  std::deque<Staged> staged;    // the sink's, oldest first
  std::deque<GraphRun> graphs;  // the sink's, oldest first
  std::deque<ChainRun> chains;  // the sink's, oldest first
  // The sink's: tickets of launches that may print and whose text has not been taken yet, oldest first.
  std::deque<uint64_t> printing;
  bool taking_text = false;
  uint32_t in_flight = 0;  // at CUDA, not known to be complete
  uint32_t queued = 0;     // weight of those
  uint32_t max_in_flight = kFirstInFlight;
  uint64_t command_ns = 0;  // recent duration of a command
  uint64_t done_ns = 0;     // when the newest mark was seen to be done
  uint32_t unmarked = 0;    // at CUDA since the last mark
  uint32_t unmarked_weight = 0;
  uint64_t unmarked_first = 0;
  uint64_t behind_legacy = 0;  // newest legacy ticket that this stream is ordered after
  uint64_t legacy_behind = 0;  // newest ticket of this stream that legacy is ordered after
  // A chunk is on its way to CUDA (Submitters): set by the sink, which then calls OnSubmitted.
  bool busy = false;
  uint64_t busy_first = 0;
  uint64_t busy_ticket = 0;
  uint32_t busy_commands = 0;
  // The sink's: since the last mark, and of what another thread launches.
  Tally tally;
  Tally busy_tally;
  // The sink's: the meter's number for the oldest mark's work.
  std::optional<uint64_t> metered;
  uint64_t head_ns = 0;  // since when that work is metered
  // The sink's: what the work behind each ticket waits for in other sessions. At most kMaxForeignWaits.
  std::vector<std::pair<uint64_t, PointRef>> foreign;
  // The sink's: limits for launches that are grouped; at most `max_chunk` go together.
  arbiter::CutPoint cut;
  uint32_t max_chunk = kMaxChunkLaunches;
  bool listed_active = false;
  bool listed_waiting = false;
  bool listed_unmarked = false;
  bool listed_open = false;

  // Something is at CUDA, or on its way there.
  bool AtDevice() const { return busy || in_flight != 0 || !marks.empty(); }
  // Also checks in_flight: a part of a command whose last part never comes may be at CUDA.
  bool Idle() const { return enqueued == completed && !busy && in_flight == 0; }
};

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

 protected:
  ~StreamSink() = default;
};

class StreamSet {
 public:
  // While *hold is true nothing is submitted. `room` outlives this.
  StreamSet(StreamSink* sink, const bool* hold, DriverRoom* room)
      : sink_(sink), hold_(hold), room_(room), streams_(wire::kMaxStreams) {}
  ~StreamSet() { room_->Give(queued_); }
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

  // Calls `command` or `chunk` for what would be submitted next in each stream if its turn allowed it. If there are
  // many streams it looks at some of them, and at the next ones when called again.
  template <typename OnCommand, typename OnChunk>
  void ForEachReady(OnCommand&& command, OnChunk&& chunk) {
    for (size_t looked = 0; looked < std::min(waiting_.size(), kMaxScanned); ++looked) {
      const Stream* stream = waiting_[ready_turn_++ % waiting_.size()];
      if (!stream->waiting.empty() && IsReady(*stream, stream->waiting.front())) {
        command(stream->waiting.front());
      }
    }
    for (size_t looked = 0; looked < std::min(open_.size(), kMaxScanned); ++looked) {
      const Stream* stream = open_[open_turn_++ % open_.size()];
      if (MayClose(*stream)) chunk(*stream->open);
    }
  }
  static constexpr size_t kMaxScanned = 64;

  // Returns true if ForEachReady looks at all of them each time.
  bool ScansAll() const { return waiting_.size() <= kMaxScanned && open_.size() <= kMaxScanned; }

  // Call when the commands that end with the stream's oldest mark are done.
  void CompleteOldestMark(Stream& stream, uint64_t now_ns);
  void AddMark(Stream& stream, PointRef point, uint64_t now_ns);

  // Drops a piece of what has not been submitted; returns true if that was the last. After the first call nothing may
  // be enqueued.
  [[nodiscard]] bool DropWaiting();
  // Removes idle streams from the active list, and returns those that the tenant has destroyed.
  std::vector<std::unique_ptr<Stream>> TakeEnded();

  // At session end, when all are idle: some stream, or nullptr. After the first call streams may not be queried.
  std::unique_ptr<Stream> TakeAny();

  // Everything with an older ticket than this is done; UINT64_MAX if everything is. As exact as the marks are.
  uint64_t OldestUnfinished() const;

  bool Idle() const { return active_.empty(); }
  // Returns true if something is at CUDA and not known to be complete.
  bool AtDevice() const;
  // Recent command duration of the stream at CUDA where commands take longest.
  uint64_t SlowestCommandNs() const;
  size_t waiting_commands() const { return waiting_commands_; }
  size_t waiting_bytes() const { return waiting_bytes_; }
  // Streams with commands that are not done / with commands after their last mark.
  const std::vector<Stream*>& active() const { return active_; }
  std::vector<Stream*> TakeUnmarked();

 private:
  void AddDependencies(Stream& stream, std::vector<Dependency>* dependencies);
  // Closes the chunks that `dependencies` wait for.
  void CloseBefore(const std::vector<Dependency>& dependencies);
  void Close(Stream& stream);
  void SetActive(Stream& stream);
  void Wait(Stream& stream, StreamCommand&& command);
  bool HasRoom(const Stream& stream) const;
  bool AreSubmitted(const std::vector<Dependency>& dependencies) const;
  bool IsReady(const Stream& stream, const StreamCommand& command) const;
  bool CanSubmit(const Stream& stream, const StreamCommand& command) const {
    return IsReady(stream, command) && sink_->MaySubmit(stream, command);
  }
  // Whether the stream's open chunk could be submitted.
  bool MayClose(const Stream& stream) const {
    return stream.open != nullptr && stream.waiting.empty() && HasRoom(stream) &&
           AreSubmitted(stream.open_dependencies);
  }
  bool IsSubmitted(const Dependency& dependency) const;
  void SubmitWaitsEarly(Stream& stream);
  bool PassesGate(const Stream& stream, const StreamCommand& command) const;
  void SubmitNow(Stream& stream, StreamCommand& command);
  // For parts other than the last: the command stays at the head of its stream.
  void SubmitPart(Stream& stream, StreamCommand& command);
  // In the driver's queues.
  void AcquireQueueSpace(uint32_t places);
  void ReleaseQueueSpace(uint32_t places);
  void Count(Stream& stream, uint64_t first, uint64_t ticket, uint32_t commands, uint32_t weight);

  StreamSink* sink_;
  const bool* hold_;
  DriverRoom* room_;
  uint32_t queued_ = 0;  // places taken by this
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> active_;
  std::vector<Stream*> waiting_;              // have commands in `waiting`
  std::vector<Stream*> unmarked_;             // have `unmarked` commands
  std::vector<Stream*> open_;                 // have `open`, or had it
  Stream* grown_ = nullptr;                   // the last to collect
  std::vector<Dependency> new_dependencies_;  // of the next launch
  std::vector<ChunkPtr> idle_chunks_;
  std::vector<Stream*> blocking_since_legacy_;  // blocking streams used since legacy's last command
  size_t waiting_commands_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t streams_at_device_ = 0;  // with commands in flight
  uint32_t marks_ = 0;              // the marks of all streams
  size_t turn_ = 0;                 // index in `waiting_`: where SubmitWaiting begins
  size_t checked_in_vain_ = 0;      // by SubmitWaiting, at so many in a row
  size_t ready_turn_ = 0;           // as turn_, for ForEachReady
  size_t open_turn_ = 0;            // the same in `open_`
  uint64_t last_order_ = 0;
};

}  // namespace gpuloom::executor
