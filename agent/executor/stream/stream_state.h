// SPDX-License-Identifier: Apache-2.0
// One stream of a session: what waits in it, what of it is at CUDA, and how far it has come. Tickets rise within a stream:
//
//   completed  ≤  submitted  ≤  enqueued
//      done    at CUDA       waiting
//
// Plain data, owned by the session's StreamSet; ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/arbiter/cut_point.h"
#include "agent/executor/device/stream_charges.h"
#include "agent/executor/stream/stream_command.h"
#include "agent/executor/stream/tally.h"

namespace gpuloom::executor {

struct Chain;
struct GreenContext;

// How many commands a stream may have at CUDA until its command duration is known (in_flight.h).
inline constexpr uint32_t kFirstInFlight = 32;

// Beyond these the oldest are forgotten; they only serve to find the stream that has waited longest.
inline constexpr size_t kMaxForeignWaits = 64;

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
  bool timing = false;  // counted in Stream::timing
};

// A chain at CUDA.
struct ChainRun {
  uint64_t ticket;
  std::shared_ptr<Chain> chain;
};

// In how many hardware queues work waits (hardware_queues.h). Launches of one executable graph follow one another in the same
// ones.
struct QueueNeed {
  const Graph* graph = nullptr;  // null if it is one queue, the stream's
  uint32_t queues = 1;
};
// Of a graph at CUDA: the queues beside its stream's.
struct HeldQueues {
  const Graph* graph;
  uint64_t ticket;  // of its last launch
  uint32_t queues;
};

// Device memory per stream, measured: 34 MiB for 64 of them. A session's first few come out of the
// reserve, so that a program with a stream or two has its whole quota. Ids are assigned from the lowest.
inline constexpr uint64_t kStreamTakesBytes = 544u << 10;
inline constexpr uint32_t kFreeStreams = 8;

// Read by the sink; modified by StreamSet and InFlight only, except fields that say otherwise.
struct Stream {
  wire::StreamId id{};
  bool blocking = true;
  std::shared_ptr<GreenContext> green;  // null: it belongs to the primary context
  bool destroyed = false;   // the tenant has destroyed it; it is removed when its commands are done
  int priority = 0;         // as its program requested
  CUstream cuda = nullptr;  // created by the sink on first use
  CUcontext context = nullptr;      // the sink's, of `cuda`: where its kernels run
  CUgreenCtx cuda_green = nullptr;  // the same: the green context that it was made in, if any
  int cuda_priority = 0;            // the sink's, of `cuda`: in its class's band
  uint32_t terms = 0;               // the sink's: TimeSharing::changes() when that was looked at
  bool drains = false;  // the sink's: nothing more is submitted until CUDA has nothing of it
  bool waits_enqueued = false;  // the sink's: CUDA makes it wait, and no work came after that
  StreamChargeRef charge;       // the sink's, for `cuda`; null for a session's first ones
  uint64_t enqueued = 0;        // newest ticket
  uint64_t submitted = 0;       // newest ticket that CUDA has
  uint64_t completed = 0;       // newest ticket that is done
  // Newest ticket, at CUDA, of a kernel, a graph, or a wait for another stream: what may take without end.
  uint64_t endless = 0;
  bool holds_queue = false;  // of the hardware's: something is behind such work (hardware_queues.h)
  std::vector<HeldQueues> held_queues;  // more of them
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
  uint32_t timing = 0;     // the sink's: events with timing at CUDA
  uint32_t in_flight = 0;  // at CUDA, not known to be complete
  uint32_t queued = 0;     // weight of those
  uint32_t max_in_flight = kFirstInFlight;
  uint64_t command_ns = 0;       // recent duration of a command
  uint64_t done_ns = 0;          // when the newest mark was seen to be done
  uint32_t kernel_marks = 0;     // of `marks`: of the kernels' engine
  uint32_t long_copy_marks = 0;  // of long copies
  uint32_t unmarked = 0;         // at CUDA since the last mark
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
  uint32_t new_in_a_row = 0;  // chunks whose sequences had not come up before (Launches)
  bool listed_active = false;
  bool listed_waiting = false;
  bool listed_unmarked = false;
  bool listed_open = false;

  // What is submitted now would wait at the device, perhaps for long.
  bool HoldsUp() const { return endless > completed; }
  // Something is at CUDA, or on its way there.
  bool AtDevice() const { return busy || in_flight != 0 || !marks.empty(); }
  // The same of work for the kernels' engine.
  bool HasKernelsAtDevice() const { return busy || kernel_marks != 0 || tally.IsKernels(); }
  // A kernel that is submitted now would wait there for a copy, and for how long that takes.
  bool IsBehindLongCopy() const { return long_copy_marks != 0 || tally.IsLongCopy(); }
  // Also checks in_flight: a part of a command whose last part never comes may be at CUDA.
  bool Idle() const { return enqueued == completed && !busy && in_flight == 0; }
};

}  // namespace gpuloom::executor
