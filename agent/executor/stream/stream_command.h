// SPDX-License-Identifier: Apache-2.0
// One stream command on its way from the ring to CUDA, already validated: its handles are resolved and its ranges belong
// to the session.
//
// Made by a part's handler, then owned by its stream's queue (stream_set.h) until it is submitted; destroying one drops
// it. It keeps alive whatever its handles refer to (libraries, arrays, graphs, points), because the tenant may destroy
// these while it waits. `payload` alone is borrowed: OwnPayload before the record is released.
//
// Ring thread only, but for a chunk's launches (chunk.h). Nothing fails here: handlers have refused what is wrong, and
// CUDA's errors are the results of Submit…. Its host memory counts against the session's queues (CostBytes).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "agent/executor/image/array.h"
#include "agent/executor/launch/chunk.h"
#include "agent/executor/stream/point.h"
#include "proto/wire/block_copy_commands.h"
#include "proto/wire/copy_commands.h"
#include "proto/wire/launch_commands.h"
#include "proto/wire/memory_operation_commands.h"

namespace gpuloom::executor {

class Graph;
struct Bindings;
struct SectionedLaunch;

// Queued commands hold what they need by value; `payload` is the one exception.
struct LaunchWork {
  wire::Launch::Request request;
  CUkernel kernel;
  std::shared_ptr<const void> library;  // keeps the kernel loaded while the command waits
  bool prints;                          // may print: the library names printf
  // The bindings of the library's references when the launch was read; null: it has none.
  std::shared_ptr<const Bindings> bindings;
};
struct LaunchExWork {
  wire::LaunchEx::Request request;
  CUkernel kernel;
  std::shared_ptr<const void> library;
  bool prints;
  std::shared_ptr<const Bindings> bindings;
};
struct CopyWork {
  wire::Copy::Request request;
};
struct CopyInlineWork {
  uint64_t destination;
};
struct FillWork {
  wire::Fill::Request request;
};
// An array side of a block copy: its handle, and what keeps it alive.
struct CopyEnd {
  CUarray array = nullptr;
  ArrayRef whole;
};
struct CopyBlockWork {
  wire::GraphCopy copy;
  CopyEnd to;
  CopyEnd from;
};
struct FillBlockWork {
  wire::GraphFill fill;
};
struct WriteValueWork {
  wire::StreamWriteValue::Request request;
};
struct RecordWork {
  PointRef point;
};
struct GraphWork {
  std::shared_ptr<Graph> graph;
  bool upload;                                // instead of a launch
  std::vector<PointRef> points;               // of the events it records
  std::shared_ptr<SectionedLaunch> sections;  // null: it goes as a whole
};
// Launches submitted together. The command's ticket is that of the last launch.
struct ChunkWork {
  ChunkPtr chunk;
};
struct NoWork {};  // for ordering only: a wait for an event, the end of a stream
using Work =
    std::variant<NoWork, LaunchWork, LaunchExWork, CopyWork, CopyInlineWork, FillWork,
                 CopyBlockWork, FillBlockWork, WriteValueWork, RecordWork, GraphWork, ChunkWork>;

// block_copy.cc: submits the work and returns CUDA's result.
CUresult SubmitBlock(const Driver& cuda, const CopyBlockWork& work, CUstream stream);
CUresult SubmitFillBlock(const Driver& cuda, const FillBlockWork& work, CUstream stream);
// memory_operation.cc
CUresult SubmitWriteValue(const Driver& cuda, const wire::StreamWriteValue::Request& write,
                          CUstream stream);

// Holds back a command whose turn has come, until the tenant's function has returned, or until a word has changed.
// `try_open` is called only when everything before the command is done, not merely submitted to CUDA, and then
// repeatedly until it is open.
struct Gate : std::enable_shared_from_this<Gate> {
  bool open = false;
  std::function<void(Gate* gate)> try_open;  // may set `open`; must not touch the queues

  // Returns a function that opens it later, unless the queue, and the gate with it, was dropped meanwhile.
  std::function<void()> Opener() {
    return [weak = weak_from_this()] {
      if (const auto gate = weak.lock()) gate->open = true;
    };
  }
};

// Means "not before `ticket` of `stream`". `point` is exactly that position, if known.
struct Dependency {
  wire::StreamId stream;
  wire::Ticket ticket;
  PointRef point;
  // The stream belongs to another session: only `point` says when, and it may not have been recorded yet.
  bool foreign = false;
};

struct StreamCommand {
  wire::Ticket ticket{};
  Work work;
  std::vector<Dependency> dependencies;
  std::shared_ptr<Gate> gate;  // null: none
  // Points into the ring's private copy until the command has to wait; then call OwnPayload.
  std::span<const uint8_t> payload;
  std::unique_ptr<uint8_t[]> owned_payload;
  uint32_t commands = 1;  // the tenant's commands that it stands for; the last has this ticket
  // Places it takes in the driver's queue. For a chunk the sink sets this.
  uint32_t weight = 1;
  // Number of times it is submitted, each time through its gate, which closes after all but the last.
  uint32_t parts = 1;
  bool is_timed = false;  // timed_launch.h: from the ring thread, and marked at once

  void OwnPayload() {
    if (payload.empty() || owned_payload != nullptr) return;
    owned_payload = std::make_unique<uint8_t[]>(payload.size());
    std::copy(payload.begin(), payload.end(), owned_payload.get());
    payload = {owned_payload.get(), payload.size()};
  }
};

inline size_t DependencyBytes(const std::vector<Dependency>& dependencies) {
  return dependencies.size() * sizeof(Dependency);
}
// Host memory of a waiting command, for the limit at which the ring is read no further
// (Session::MayRead). Must not change while it waits but by what SubmitWaitsEarly subtracts: the
// same number is taken off when it goes.
size_t CostBytes(const StreamCommand& command);
// The ticket of the first of the tenant's commands that it stands for.
uint64_t FirstTicket(const StreamCommand& command);

}  // namespace gpuloom::executor
