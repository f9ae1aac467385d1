// SPDX-License-Identifier: Apache-2.0
// One command of a stream on its way from the ring to CUDA, judged already: its handles are
// resolved and its ranges are the session's own. Plain data, ring thread only.
#pragma once

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
#include "proto/wire/launch_commands.h"
#include "proto/wire/memory_operation_commands.h"

namespace gpuloom::executor {

class Graph;
struct Bindings;
struct SectionedLaunch;

// Commands that run later hold what they need by value; `payload` is the one exception.
struct LaunchWork {
  wire::Launch::Request request;
  CUfunction function;
  std::shared_ptr<const void> library;  // keeps the function loaded while the command waits
  bool prints;                          // it may: the library names printf
  // What the library's references were bound to when the launch was read; null: it has none.
  std::shared_ptr<const Bindings> bindings;
};
struct LaunchExWork {
  wire::LaunchEx::Request request;
  CUfunction function;
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
// A side of a block copy that is an array: its handle, and what keeps it alive.
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
  std::vector<PointRef> points;               // of the events that it records
  std::shared_ptr<SectionedLaunch> sections;  // null: it goes as a whole
};
// Launches that go together. Its ticket is the last one's.
struct ChunkWork {
  ChunkPtr chunk;
};
struct NoWork {};  // only order: a wait for an event, the end of a stream
using Work =
    std::variant<NoWork, LaunchWork, LaunchExWork, CopyWork, CopyInlineWork, FillWork,
                 CopyBlockWork, FillBlockWork, WriteValueWork, RecordWork, GraphWork, ChunkWork>;

// block_copy.cc: what CUDA says to the work.
CUresult SubmitBlock(const Driver& cuda, const CopyBlockWork& work, CUstream stream);
CUresult SubmitFillBlock(const Driver& cuda, const FillBlockWork& work, CUstream stream);
// memory_operation.cc
CUresult SubmitWriteValue(const Driver& cuda, const wire::StreamWriteValue::Request& write,
                          CUstream stream);

// What holds a command back although its turn has come: the tenant's function that has to return, a
// word that has to change. Knocked at only when everything before the command is done, not merely
// at CUDA, and then again and again until it is open.
struct Gate : std::enable_shared_from_this<Gate> {
  bool open = false;
  std::function<void(Gate* gate)> knock;  // may set `open`; must not touch the queues

  // Opens it, unless the queue was dropped meanwhile, and the gate with it. For later.
  std::function<void()> Opener() {
    return [weak = weak_from_this()] {
      if (const auto gate = weak.lock()) gate->open = true;
    };
  }
};

// "Not before `ticket` of `stream`." `point` lies exactly there when it is known.
struct Dependency {
  wire::StreamId stream;
  wire::Ticket ticket;
  PointRef point;
  // Of another session's stream: `point` alone says when, and it may not have been recorded yet.
  bool foreign = false;
};

struct StreamCommand {
  wire::Ticket ticket{};
  Work work;
  std::vector<Dependency> dependencies;
  std::shared_ptr<Gate> gate;  // null: none
  // Points into the ring's private copy until the command has to wait: then OwnPayload.
  std::span<const uint8_t> payload;
  std::unique_ptr<uint8_t[]> owned_payload;
  uint32_t commands = 1;  // of the tenant's, the last with this ticket
  // How much of the driver's queue it fills. The sink says so of a chunk.
  uint32_t weight = 1;
  // It is handed over so many times more, each time through its gate, which closes behind all but the last.
  uint32_t parts = 1;

  void OwnPayload() {
    if (payload.empty() || owned_payload != nullptr) return;
    owned_payload = std::make_unique<uint8_t[]>(payload.size());
    std::copy(payload.begin(), payload.end(), owned_payload.get());
    payload = {owned_payload.get(), payload.size()};
  }
};

}  // namespace gpuloom::executor
