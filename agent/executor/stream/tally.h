// SPDX-License-Identifier: Apache-2.0
// What the commands between two marks of a stream mean for the sharing of the device's time: the engine that they keep
// busy, since when, and, while the time is shared, how long they are predicted to take (docs/design/sharing-time.md).
//
// Plain values, owned by the stream while it collects and by its mark (marks.cc) afterwards; ring thread only. `kernel` is
// a handle, which stays valid for as long as the work is at the device. Nothing fails. Times are nanoseconds of the loop's
// clock.
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

// nullopt: the command keeps no engine busy.
std::optional<arbiter::Engine> EngineOf(const StreamCommand& command);
// How many bytes a block copy copies.
uint64_t BytesOf(const wire::GraphCopy& copy);
// The kernel of a launch, or of the first of a chunk; nullptr: the command is not a launch.
CUkernel KernelOf(const StreamCommand& command);
// Commands that take about as long have the same key. The caller adds the owner.
arbiter::LaunchKey KeyOf(const StreamCommand& command);
arbiter::LaunchKey KeyOf(const Chunk& chunk);
arbiter::LaunchKey KeyOfClear(uint64_t size_bytes);  // memory/clears.h

// What a trace records of the commands, noted while there is a trace (trace/tracer.h).
struct Noted {
  uint64_t trace_id = 0;
  uint64_t bytes = 0;
  uint32_t commands = 0;  // 0: nothing was noted
  uint32_t name = 0;      // the first kernel's
  wire::TraceKind kind = wire::TraceKind::kOther;

  // If there are several kinds, kernels take precedence.
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

  // A call that launches takes microseconds. At a kernel's first launch it may load the kernel first, or it waits for room
  // in the device's queue, and what it launches comes to the device at its end.
  static constexpr uint64_t kLongCallNs = 1'000'000;
  // From when on what was launched between the two counts as submitted.
  static uint64_t LaunchedNs(uint64_t called_ns, uint64_t returned_ns) {
    return returned_ns - called_ns > kLongCallNs ? returned_ns : called_ns;
  }

  bool any = false;  // there is work for an engine
  arbiter::Engine engine = arbiter::Engine::kCompute;
  uint64_t since_ns = 0;  // when the first command was submitted

  uint32_t launches = 0;  // of kernels, and what else goes to their engine; a graph counts as one
  CUkernel kernel = nullptr;  // of the first launch; null: it is not a kernel

  // The part that was passed to the arbiter.
  arbiter::Work work;
  uint64_t alone_ns = 0;  // of what is predicted for it, what was measured alone
  // The pieces' key, if all have the same.
  arbiter::LaunchKey key;
  bool alike = true;
  // Long enough, or so little known, that a mark of its own is worth its price.
  bool marks = false;
  Noted noted;

  // Longer than it takes to see that a copy is done and to submit what waits for it.
  static constexpr uint64_t kLongCopyNs = 50'000;
  bool IsKernels() const { return any && engine == arbiter::Engine::kCompute; }
  // As far as predicted, while the time is shared.
  bool IsLongCopy() const {
    return any && engine != arbiter::Engine::kCompute && work.predicted_ns >= kLongCopyNs;
  }

  // If commands are for different engines, the kernels' one takes precedence.
  void Add(arbiter::Engine on) {
    if (!any || on == arbiter::Engine::kCompute) engine = on;
    any = true;
  }
  void Add(const arbiter::LaunchKey& of, const arbiter::Prediction& prediction) {
    alike = alike && (work.pieces == 0 || key == of);
    key = of;
    ++work.pieces;
    work.predicted_ns += prediction.ns;
    if (prediction.alone) alone_ns += prediction.ns;
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
    alone_ns += later.alone_ns;
  }
};

}  // namespace gpuloom::executor
