// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/tracer.h"

#include <errno.h>
#include <string.h>

#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/process/log.h"
#include "agent/executor/stream/stream_command.h"
#include "agent/node/clock.h"

namespace gpuloom::executor {

using control::TraceStep;
using wire::TraceKind;
using wire::TraceRecord;

Tracer::Tracer(Device* device, const TraceMeans* means, int wake_fd, Callbacks callbacks)
    : device_(device), means_(means), callbacks_(std::move(callbacks)) {
  if (means->cupti) activity_ = std::make_unique<Activity>(device, *means->cupti, wake_fd);
}

// A new trace ends the present one: there is one region and one CUPTI. Nothing is reported for an
// earlier one that still waits.
void Tracer::Start(Trace trace) {
  next_ = std::move(trace);
  if (state_ == State::kNone) return Begin();
  if (state_ == State::kRecords) return EndRecording();
  stop_requested_ = true;
}

// A trace that has not begun is reported as written at once, with nothing in it.
void Tracer::Stop(uint64_t trace_id) {
  if (next_ && next_->id == trace_id) {
    next_.reset();
    return callbacks_.progress(trace_id, TraceStep::kWritten);
  }
  if (!trace_ || trace_->id != trace_id) return;
  if (state_ == State::kRecords) return EndRecording();
  stop_requested_ = true;
}

// With CUPTI the trace begins when it records, which takes it a moment: from now on owners are
// noted, with ids when CUPTI can be asked for them.
void Tracer::Begin() {
  trace_ = std::exchange(next_, {});
  stop_requested_ = false;
  if (!writer_.Map(trace_->region.get(), trace_->most_records)) {
    Log(LogLevel::kError, "trace: its memory cannot be mapped: %s", strerror(errno));
    return EndTrace();
  }
  // The scheduler's decision, for a tenant's own trace.
  if (!trace_->cupti) return BeginOwn("cupti: would make other pods of the trust domain slower");
  if (activity_ == nullptr) return BeginOwn(means_->why_not);
  owners_.Begin(trace_->allocation_id);
  // There are no stream ids, but whether others have streams counts from the beginning.
  for (const auto& [cuda, owner] : streams_) owners_.Add({}, owner, 0);
  state_ = State::kAttaching;
  activity_->Start(&writer_, &owners_);
}

// From now on every mark of a stream is a record (Note, Reached).
void Tracer::BeginOwn(const std::string& why) {
  Log(LogLevel::kInfo, "trace: the executor's own records serve: %s", why.c_str());
  // A tenant need not know the node's files.
  const bool tells_why = trace_->allocation_id == 0 || !trace_->cupti;
  writer_.Begin(wire::TraceSource::kOwn, tells_why ? why : "cupti: cannot be had on this node",
                NowNs());
  state_ = State::kRecords;
  notes_ = true;
  // Reports what all sessions have used so far, so that what they use during the trace is a
  // difference of two reports.
  callbacks_.counters();
  writer_.SetBegin(NowNs());
  callbacks_.progress(trace_->id, TraceStep::kRecords);
}

// Our own records end here. CUPTI's come for a moment longer: its thread is told to stop, and Poll
// sees when it is done.
void Tracer::EndRecording() {
  callbacks_.counters();
  writer_.SetEnd(NowNs());
  callbacks_.progress(trace_->id, TraceStep::kStopped);
  if (std::exchange(notes_, false)) return EndTrace();
  state_ = State::kWriting;
  activity_->Stop();
}

void Tracer::EndTrace() {
  writer_.Unmap();
  state_ = State::kNone;
  callbacks_.progress(std::exchange(trace_, {})->id, TraceStep::kWritten);
  if (next_) Begin();
}

// Follows the state of CUPTI's thread, which cannot call the ring thread's code.
bool Tracer::Poll() {
  if (state_ == State::kNone || notes_) return false;
  switch (activity_->state()) {
    case Activity::State::kRecords:
      if (state_ != State::kAttaching) return false;
      state_ = State::kRecords;
      Log(LogLevel::kInfo, "trace: recorded by CUPTI, %s", means_->cupti->path.c_str());
      for (const auto& [cuda, owner] : streams_) {
        owners_.Add(activity_->IdOf(cuda), owner, 0);
      }
      callbacks_.counters();
      writer_.SetBegin(NowNs());
      callbacks_.progress(trace_->id, TraceStep::kRecords);
      // The trace was to stop before it had begun.
      if (stop_requested_) EndRecording();
      return true;
    case Activity::State::kFailed:
      activity_->Finish();
      BeginOwn(activity_->why());
      if (stop_requested_) EndRecording();
      return true;
    case Activity::State::kDone:
      activity_->Finish();
      EndTrace();
      return true;
    default:
      return false;
  }
}

// While CUPTI attaches it cannot be asked for the stream's id; all ids are asked for when it
// records.
void Tracer::OnStreamAcquired(CUstream cuda, const StreamOwner& owner) {
  streams_[cuda] = owner;
  if (notes_ || (state_ != State::kAttaching && state_ != State::kRecords)) return;
  owners_.Add(state_ == State::kRecords ? activity_->IdOf(cuda) : std::nullopt, owner, NowNs());
}

// As in the image, mangled.
uint32_t Tracer::NameOf(CUkernel kernel) {
  const char* name = device_->NameOf(kernel);
  return name == nullptr ? 0 : writer_.Name(name);
}

// Called with each command on its way to CUDA, for the mark that will stand for it. What stands for
// several kernels has the first one's name.
void Tracer::Note(const StreamCommand& command, Tally* tally) {
  Noted& noted = tally->noted;
  if (noted.commands == 0) noted.trace_id = trace_->id;
  const auto kernel = [&](CUkernel named) {
    if (noted.name == 0) noted.name = NameOf(named);
    return TraceKind::kKernel;
  };
  const auto copy = [&](uint64_t bytes) {
    noted.bytes += bytes;
    const auto engine = EngineOf(command);
    return engine == arbiter::Engine::kCopyToDevice     ? TraceKind::kCopyToDevice
           : engine == arbiter::Engine::kCopyFromDevice ? TraceKind::kCopyFromDevice
                                                        : TraceKind::kCopyOnDevice;
  };
  TraceKind kind = TraceKind::kOther;
  uint32_t commands = 1;
  if (const auto* launch = std::get_if<LaunchWork>(&command.work)) {
    kind = kernel(launch->kernel);
  } else if (const auto* launch_ex = std::get_if<LaunchExWork>(&command.work)) {
    kind = kernel(launch_ex->kernel);
  } else if (const auto* chunk = std::get_if<ChunkWork>(&command.work)) {
    kind = kernel(chunk->chunk->nodes.front().kernel);
    commands = chunk->chunk->size();
  } else if (std::holds_alternative<GraphWork>(command.work)) {
    kind = TraceKind::kGraph;
  } else if (const auto* plain = std::get_if<CopyWork>(&command.work)) {
    kind = copy(plain->request.size_bytes);
  } else if (std::holds_alternative<CopyInlineWork>(command.work)) {
    kind = copy(command.payload.size());
  } else if (const auto* block = std::get_if<CopyBlockWork>(&command.work)) {
    kind = copy(BytesOf(block->copy));
  } else if (const auto* fill = std::get_if<FillWork>(&command.work)) {
    kind = TraceKind::kFill;
    noted.bytes += fill->request.count * fill->request.element_bytes;
  } else if (std::holds_alternative<FillBlockWork>(command.work)) {
    kind = TraceKind::kFill;
  }
  noted.Add(kind, commands);
}

void Tracer::Reached(const Tally& tally, uint64_t session_id, uint32_t stream, uint64_t begin_ns,
                     uint64_t end_ns) {
  // What was submitted before the trace began was not noted.
  if (!notes_ || tally.noted.commands == 0 || tally.noted.trace_id != trace_->id) return;
  TraceRecord record{};
  record.session_id = session_id;
  record.stream = stream;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  record.bytes = tally.noted.bytes;
  record.name = tally.noted.name;
  record.kind = static_cast<uint32_t>(tally.noted.kind);
  record.commands = tally.noted.commands;
  writer_.Write(record);
}

}  // namespace gpuloom::executor
