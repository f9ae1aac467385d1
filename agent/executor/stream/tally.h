// SPDX-License-Identifier: Apache-2.0
// What the commands between two marks of a stream mean for the sharing of the device's time: the engine that they keep
// busy, since when, and, while the time is shared, how long they are predicted to take. Plain value, ring thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/arbiter/domain_arbiter.h"
#include "agent/arbiter/launch_predictor.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/graph_nodes.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::executor {

struct Chunk;
struct StreamCommand;

// None: it keeps none busy.
std::optional<arbiter::Engine> EngineOf(const StreamCommand& command);
// What a block is copied of, in bytes.
uint64_t BytesOf(const wire::GraphCopy& copy);
// The kernel of a launch, or of the first of a chunk; null: it is none.
CUkernel KernelOf(const StreamCommand& command);
// What takes about as long has the same key. The owner is for the caller to add.
arbiter::LaunchKey KeyOf(const StreamCommand& command);
arbiter::LaunchKey KeyOf(const Chunk& chunk);

// What a trace says of them, noted while one is recorded (trace/tracer.h).
struct Noted {
  uint64_t trace_id = 0;
  uint64_t bytes = 0;
  uint32_t commands = 0;  // 0: nothing was noted
  uint32_t name = 0;      // the first kernel's
  wire::TraceKind kind = wire::TraceKind::kOther;

  // Of several kinds the kernels count.
  void Add(wire::TraceKind of, uint32_t more) {
    using wire::TraceKind;
    if (commands == 0 || of == TraceKind::kKernel) kind = of;
    if (kind != of && kind != TraceKind::kKernel) kind = TraceKind::kOther;
    commands += more;
  }
  void Add(const Noted& later) {
    if (later.commands == 0) return;
    if (commands == 0 || trace_id != later.trace_id) {
      *this = later;
      return;
    }
    if (name == 0) name = later.name;
    bytes += later.bytes;
    Add(later.kind, later.commands);
  }
};

struct Tally {
  // A mark takes about a microsecond.
  static constexpr uint64_t kMarkedNs = 10'000;

  bool any = false;  // there is work for an engine
  arbiter::Engine engine = arbiter::Engine::kCompute;
  uint64_t since_ns = 0;  // when the first was submitted

  uint32_t launches = 0;      // of kernels, and what else goes to their engine; a graph is one
  CUkernel kernel = nullptr;  // of the first launch; null: it is no kernel

  // Of what the arbiter was told.
  arbiter::Work work;
  // The pieces' key, if all have the same.
  arbiter::LaunchKey key;
  bool alike = true;
  // Long enough, or so little known, that a mark of its own is worth its price.
  bool marks = false;
  Noted noted;

  // Of commands for different engines the kernels count.
  void Add(arbiter::Engine on) {
    if (!any || on == arbiter::Engine::kCompute) engine = on;
    any = true;
  }
  void Add(const arbiter::LaunchKey& of, const arbiter::Prediction& prediction) {
    alike = alike && (work.pieces == 0 || key == of);
    key = of;
    ++work.pieces;
    work.predicted_ns += prediction.ns;
    marks = work.predicted_ns >= kMarkedNs || !prediction.sure();
  }
  void Add(const Tally& later) {
    if (!later.any) return;
    if (!any) since_ns = later.since_ns;
    if (launches == 0) kernel = later.kernel;
    launches += later.launches;
    Add(later.engine);
    alike = alike && later.alike && (work.pieces == 0 || key == later.key);
    key = later.key;
    noted.Add(later.noted);
    work.pieces += later.work.pieces;
    work.predicted_ns += later.work.predicted_ns;
  }
};

}  // namespace gpuloom::executor
