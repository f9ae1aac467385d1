// SPDX-License-Identifier: Apache-2.0
// The streams of one session: in which order their commands may be handed to CUDA, and how far each
// has come. Pure: what is handed over goes to a StreamSink, which alone calls CUDA.
//
// Rules. Commands of one stream go in ring order. A command goes when everything it depends on has
// gone (not: is done); the sink then makes the GPU wait where that is not done. Dependencies always
// name older tickets, so no cycle can arise. The legacy default stream (id 0) waits for all
// blocking streams of this session and they for it, as CUDA's does; other sessions are never
// involved. At most kMaxInFlight launches of a stream are at CUDA at a time, because a full queue
// of the driver (about 1,024 launches) would block the thread that serves everybody; what all streams of
// all sessions have there is bounded too (driver_room.h). A command with a gate goes when everything before it is done and the gate is open;
// one of several parts goes part by part, each when the part before it is done and the gate is open again.
//
// Launches that may go together (Collect) gather at the end of their stream, in a chunk, while there
// are more in the ring. The chunk is closed, and goes like one command, when its content says so, when
// something else comes behind it or waits for it, and when the ring is empty (Flush). Until then
// its launches are enqueued and not submitted, as if they waited.
//
// Ring thread only; owned by the session.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "agent/executor/device/driver_room.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {

struct Chain;
struct GreenContext;

inline constexpr uint32_t kMaxInFlight = 256;

// Whoever loads a library waits until everything at CUDA has run (quiet.h), so no more is handed over
// than what lasts about so long, by what the stream's commands took lately. Two go in any case: the
// device must not wait for us. It is far longer than the loop ever sleeps with work at the device.
inline constexpr uint64_t kAheadNs = 8'000'000;
inline constexpr uint32_t kFirstInFlight = 32;  // as long as nothing is known of a stream
inline constexpr uint32_t kLeastInFlight = 2;
inline constexpr uint32_t kMostInFlight = 2048;  // where a chain's launch stands for many

// Streams of one session that have work at CUDA at a time, and marks there. Whether they are done is asked in
// every round of the ring thread: each costs it up to a microsecond. The device itself runs
// 128 kernels side by side.
inline constexpr uint32_t kMaxStreamsAtDevice = 256;
inline constexpr uint32_t kMaxMarks = 2048;

// A command that waits for more than so many others has the waits told to CUDA piece by piece before.
inline constexpr size_t kMaxWaitsAtOnce = 32;

// Launches that take longer than this on average gain nothing by going together.
inline constexpr uint64_t kSlowCommandNs = 20'000;

struct Mark {
  PointRef point;
  uint32_t commands;      // that end with this mark
  uint32_t weight;        // of them
  uint64_t first_ticket;  // of them
  uint64_t made_ns;
  uint64_t order;  // among the session's marks: what one waits for has a lower one
};

// Pinned memory that a command's payload lies in until the command is done.
struct Staged {
  uint64_t ticket;
  uint8_t* copy;
  uint64_t size_bytes;
};

// A graph at CUDA, and the points that are done with it.
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

// Device memory of a stream, measured: 34 MiB for 64 of them. A session's first few are paid for by the reserve, so
// that a program with a stream or two has its whole quota. Ids are assigned from the lowest.
inline constexpr uint64_t kStreamTakesBytes = 544u << 10;
inline constexpr uint32_t kFreeStreams = 8;

// Read by the sink; changed by StreamSet only, except the fields that say otherwise.
struct Stream {
  wire::StreamId id{};
  bool blocking = true;
  std::shared_ptr<GreenContext> green;  // null: the primary context's
  bool destroyed = false;  // the tenant has ended it; it goes when its commands are done
  int priority = 0;
  CUstream cuda = nullptr;             // made by the sink when it is needed first
  std::shared_ptr<const void> charge;  // the sink's, for it; null for a session's first ones
  uint64_t enqueued = 0;               // newest ticket
  uint64_t submitted = 0;              // newest ticket that CUDA has
  uint64_t completed = 0;              // newest ticket that is done
  std::deque<StreamCommand> waiting;
  ChunkPtr open;  // behind `waiting`; never empty
  std::vector<Dependency> open_dependencies;
  std::deque<Mark> marks;       // oldest first
  std::deque<Staged> staged;    // the sink's, oldest first
  std::deque<GraphRun> graphs;  // the sink's, oldest first
  std::deque<ChainRun> chains;  // the sink's, oldest first
  // The sink's: tickets of launches that may print and whose text is not taken yet, oldest first.
  std::deque<uint64_t> printing;
  bool taking_text = false;
  uint32_t in_flight = 0;  // at CUDA, not known to be done
  uint32_t queued = 0;     // weight of those
  uint32_t max_in_flight = kFirstInFlight;
  uint64_t command_ns = 0;  // what a command took lately
  uint64_t done_ns = 0;     // when the newest mark was seen to be done
  uint32_t unmarked = 0;    // at CUDA since the last mark
  uint32_t unmarked_weight = 0;
  uint64_t unmarked_first = 0;
  uint64_t behind_legacy = 0;  // newest legacy ticket that this stream is ordered behind
  uint64_t legacy_behind = 0;  // newest ticket of this stream that legacy is ordered behind
  // A chunk is on its way to CUDA (Submitters): the sink says so, and calls OnSubmitted.
  bool busy = false;
  uint64_t busy_first = 0;
  uint64_t busy_ticket = 0;
  uint32_t busy_commands = 0;
  bool listed_active = false;
  bool listed_waiting = false;
  bool listed_unmarked = false;
  bool listed_open = false;

  // A part of a command may be at CUDA whose last part never comes.
  bool Idle() const { return enqueued == completed && !busy && in_flight == 0; }
};

class StreamSink {
 public:
  // Hands `command` to CUDA. Never fails here: errors become the tenant's asynchronous errors.
  virtual void Submit(Stream& stream, StreamCommand& command) = 0;
  // The stream's next work is to wait on the GPU for this, which has gone. Submit does so for the
  // dependencies that its command still has.
  virtual void WaitFor(Stream& stream, const Dependency& dependency) = 0;
  // False: `command` needs something that is in use; it is asked again later.
  virtual bool HasRoom(const StreamCommand& command) const = 0;

 protected:
  ~StreamSink() = default;
};

class StreamSet {
 public:
  // While *hold is true nothing is handed over. `room` outlives this.
  StreamSet(StreamSink* sink, const bool* hold, DriverRoom* room)
      : sink_(sink), hold_(hold), room_(room), streams_(wire::kMaxStreams) {}
  ~StreamSet() { room_->Give(queued_); }
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  // nullptr when the id is out of range or taken. `ticket` is the creating command's: what older
  // commands still say about an earlier stream of this id is done.
  Stream* Add(wire::StreamId id_untrusted, bool blocking, int priority, wire::Ticket ticket);
  // A stream that may be given commands, or nullptr.
  Stream* Find(wire::StreamId id_untrusted) const;
  // Also one that the tenant has destroyed but that still has commands.
  Stream* FindAny(wire::StreamId id_untrusted) const;

  // Orders the command behind what CUDA's rules demand and hands it on, at once when nothing stands
  // before it. Tickets rise from call to call.
  void Enqueue(Stream& stream, StreamCommand&& command);

  // True when the stream's launches may gain by going together.
  static bool Gains(const Stream& stream) { return stream.command_ns <= kSlowCommandNs; }
  // The same as Enqueue for a launch that may go with others.
  void Collect(Stream& stream, wire::Ticket ticket, const ChunkNode& node,
               std::span<const uint8_t> params, const std::shared_ptr<const void>& library);

  // Closes the chunks that can go, because nothing may come to join them. With `all` false the one
  // that has grown last stays open.
  void Flush(bool all);
  // A chunk that the sink has handed over.
  void Recycle(ChunkPtr chunk);

  // What the stream was busy with is at CUDA, where it weighs so much.
  void OnSubmitted(Stream& stream, uint32_t weight);

  // Hands over what has become free to go, stream by stream in turn. True when something did.
  bool SubmitWaiting(Slice* slice);

  // Commands that ended with the stream's oldest mark are done.
  void CompleteOldestMark(Stream& stream, uint64_t now_ns);
  void AddMark(Stream& stream, PointRef point, uint64_t now_ns);

  // Drops a piece of what CUDA does not have yet; true when that was the last. Nothing may be enqueued any
  // more.
  [[nodiscard]] bool DropWaiting();
  // Takes out what is idle: its list entry, and the stream itself when it was destroyed.
  std::vector<std::unique_ptr<Stream>> TakeEnded();

  // At the end, when all is idle: some stream, or null. Nothing may be asked about streams any more.
  std::unique_ptr<Stream> TakeAny();

  // Everything older than this ticket is done. UINT64_MAX when all is. As exact as the marks are.
  uint64_t OldestUnfinished() const;

  bool Idle() const { return active_.empty(); }
  // Something is at CUDA and not known to be done.
  bool AtDevice() const;
  // What the commands took lately of the stream at CUDA where they take longest.
  uint64_t SlowestCommandNs() const;
  size_t waiting_commands() const { return waiting_commands_; }
  size_t waiting_bytes() const { return waiting_bytes_; }
  // Streams with commands that are not done / that have commands behind their last mark.
  const std::vector<Stream*>& active() const { return active_; }
  std::vector<Stream*> TakeUnmarked();

 private:
  void AddDependencies(Stream& stream, std::vector<Dependency>* dependencies);
  // What others wait for must be on its way.
  void CloseBefore(const std::vector<Dependency>& dependencies);
  void Close(Stream& stream);
  void SetActive(Stream& stream);
  void Wait(Stream& stream, StreamCommand&& command);
  bool HasRoom(const Stream& stream) const;
  bool HaveGone(const std::vector<Dependency>& dependencies) const;
  bool CanSubmit(const Stream& stream, const StreamCommand& command) const;
  bool HasGone(const Dependency& dependency) const;
  void ThinOut(Stream& stream);
  bool PassesGate(const Stream& stream, const StreamCommand& command) const;
  void SubmitNow(Stream& stream, StreamCommand& command);
  // Not the last of its parts: the command stays where it is.
  void SubmitPart(Stream& stream, StreamCommand& command);
  // Of the driver's queues.
  void TakePlaces(uint32_t places);
  void GivePlaces(uint32_t places);
  void Count(Stream& stream, uint64_t first, uint64_t ticket, uint32_t commands, uint32_t weight);

  StreamSink* sink_;
  const bool* hold_;
  DriverRoom* room_;
  uint32_t queued_ = 0;  // places that this has taken
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> active_;
  std::vector<Stream*> waiting_;              // have commands in `waiting`
  std::vector<Stream*> unmarked_;             // have `unmarked` commands
  std::vector<Stream*> open_;                 // have `open`, or had it
  Stream* grown_ = nullptr;                   // the last to collect
  std::vector<Dependency> new_dependencies_;  // of the launch that comes
  std::vector<ChunkPtr> idle_chunks_;
  std::vector<Stream*> blocking_since_legacy_;  // blocking streams used since legacy's last command
  size_t waiting_commands_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t streams_at_device_ = 0;  // with commands in flight
  uint32_t marks_ = 0;              // of all of them
  size_t turn_ = 0;                 // in `waiting_`: who comes first in SubmitWaiting
  uint64_t last_order_ = 0;
};

}  // namespace gpuloom::executor
