// SPDX-License-Identifier: Apache-2.0
// From a session's streams to CUDA's: submission, and waits between streams.
#include <algorithm>
#include <utility>

#include "agent/executor/copy/copies.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/green_context.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/launch/launches.h"
#include "agent/executor/printing/printer.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/submission.h"
#include "agent/executor/stream/work_counts.h"
#include "agent/executor/trace/tracer.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// At least one mark for so many commands, so that a long run shows progress and makes room.
constexpr uint32_t kCommandsPerMark = 64;

// Launches whose text is in the device's one printf buffer: sessions take turns with them
// (printer.h).
bool Prints(const Work& work) {
  if (const auto* launch = std::get_if<LaunchWork>(&work)) return launch->prints;
  if (const auto* launch = std::get_if<LaunchExWork>(&work)) return launch->prints;
  const auto* graph = std::get_if<GraphWork>(&work);
  return graph != nullptr && !graph->upload && graph->graph->prints();
}

// A large copy to or from the host is often a piece of a still larger one, and somebody waits to
// reuse or refill its buffer, so it is marked at once. A mark costs little beside it.
constexpr uint64_t kMarkedCopyBytes = 128u << 10;

bool MarksAtOnce(const Work& work) {
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    return copy->request.kind != wire::CopyKind::kDeviceToDevice &&
           copy->request.size_bytes >= kMarkedCopyBytes;
  }
  if (const auto* block = std::get_if<CopyBlockWork>(&work)) {
    const wire::GraphCopy& copy = block->copy;
    return (copy.to.space == wire::GraphCopySpace::kHost ||
            copy.from.space == wire::GraphCopySpace::kHost) &&
           copy.width_bytes * copy.height * copy.depth >= kMarkedCopyBytes;
  }
  return false;
}

}  // namespace

// The order matters. Waits are submitted before the work, the meter's count is taken before a chunk
// is moved away, and the mark comes last, behind the work that it stands for. A failure is told to
// the tenant once for each of its commands and changes nothing else: the command counts as
// submitted, so that what waits for it goes on.
void Submission::Submit(Stream& stream, StreamCommand& command) {
  // As the stream was before this command: Count and the marks change it.
  const bool alone = IsAlone(stream, command);
  MarkBefore(stream, command);
  for (const Dependency& dependency : command.dependencies) WaitFor(stream, dependency);
  CUresult result = CUDA_SUCCESS;
  if (!std::holds_alternative<NoWork>(command.work)) result = MakeStream(stream);
  if (result == CUDA_SUCCESS && Prints(command.work)) {
    services_.printer->Began(id());
    // Like the following mark: for a command in parts, the ticket of what went before.
    stream.printing.push_back(command.parts == 1 ? static_cast<uint64_t>(command.ticket)
                                                 : stream.submitted);
  }
  const bool first = !stream.tally.any;
  Count(stream, command);
  const bool timed = result == CUDA_SUCCESS && alone && BeginTimed(stream, &command);
  result = services_.device->Judge(SubmitWork(stream, command, result));
  if (first && share_.limited && IsLaunch(command)) {
    stream.tally.since_ns = Tally::LaunchedNs(stream.tally.since_ns, services_.sharing->now_ns());
  }
  if (stream.busy) {
    stream.busy_tally = std::exchange(stream.tally, {});
    // It counts as running meanwhile: others that are ahead wait until it has caught up.
    if (!stream.metered) BeginMeter(stream, stream.busy_tally, 0);
  }
  stream.waits_enqueued = false;
  for (uint32_t i = 0; i < command.commands && result != CUDA_SUCCESS; ++i) {
    port_->ReportAsyncError(stream.id, result);
  }
  const bool piece = MarksAtOnce(command.work);
  marked_piece_ |= piece;
  // The ticket of a command in parts is reached only with the last part.
  const bool marks = piece || ((stream.tally.marks || KernelIsTimed(stream)) && command.parts == 1);
  if (timed) {
    auto point = std::make_shared<Point>(services_.device, stream.id, command.ticket, true);
    timed_.Launched(point, stream.tally.since_ns, services_.sharing->now_ns());
    return AddMark(stream, std::move(point), MayNotify(stream));
  }
  // Counted with this command, which StreamSet adds after us. What another thread launches is
  // marked when it comes back.
  if (!stream.busy && (stream.unmarked + command.commands >= kCommandsPerMark || marks) &&
      !std::holds_alternative<RecordWork>(command.work)) {
    AddMark(stream, std::make_shared<Point>(services_.device, stream.id, command.ticket, false),
            piece && MayNotify(stream));
  }
}

bool Submission::IsAlone(const Stream& stream, const StreamCommand& command) {
  return command.parts == 1 && command.dependencies.empty() && stream.marks.empty() &&
         stream.unmarked == 0 && !stream.tally.any && !stream.waits_enqueued;
}

// Not a graph: its first nodes may run while the driver still works on its last ones.
bool Submission::IsLaunch(const StreamCommand& command) {
  return std::holds_alternative<LaunchWork>(command.work) ||
         std::holds_alternative<LaunchExWork>(command.work) ||
         std::holds_alternative<ChunkWork>(command.work);
}

bool Submission::BeginTimed(const Stream& stream, StreamCommand* command) {
  const bool launches = std::holds_alternative<LaunchWork>(command->work) ||
                        std::holds_alternative<ChunkWork>(command->work);
  // Without batching each command is one call, and no other.
  if (!launches || timed_.any() || services_.chains == nullptr || services_.room->timing().any()) {
    return false;
  }
  // Counted just now, as the first of its tally.
  const uint64_t now = stream.tally.since_ns;
  if (!services_.sharing->round_trip().Take(now)) return false;
  command->is_timed = timed_.Begin(services_.device, stream.cuda, now, services_.sharing->clock());
  return command->is_timed;
}

// If launches share a mark, nobody can see which of them runs: where the policy limits a kernel's time, only short ones
// share.
bool Submission::KernelIsTimed(const Stream& stream) const {
  return share_.kernels != control::KernelTerms{} &&
         (stream.command_ns == 0 || stream.command_ns >= Tally::kMarkedNs);
}

void Submission::LeavePrintQueue() { services_.printer->Forget(id()); }

bool Submission::HasRoom(const Stream& stream, const StreamCommand& command) const {
  if (!HasObjects(stream, command)) return false;
  if (std::holds_alternative<ChunkWork>(command.work)) return launches_->HasRoom();
  if (const auto* work = std::get_if<GraphWork>(&command.work)) {
    if (!work->graph->MayLaunch(command.ticket) || !graphs_->Follows(work->graph)) return false;
    if (!work->points.empty() &&
        !services_.room->timing().MayLaunch(tenant_->timing_streams, stream.timing)) {
      return false;
    }
  }
  if (Prints(command.work) && !MayPrint(stream, command)) return false;
  return !std::holds_alternative<CopyInlineWork>(command.work) ||
         copies_->HasRoom(stream, command.payload.size());
}

// Asking puts the session into the printer's line, where it keeps others waiting. So it asks only when the command's
// dependencies and its graph are ready, and its share lets it go. While the share does not, it is ready if asking would
// be of use: only then is the device to be kept for it.
bool Submission::MayPrint(const Stream& stream, const StreamCommand& command) const {
  Printer& printer = *services_.printer;
  const uint64_t now = services_.sharing->now_ns();
  if (MaySubmit(stream, command)) return printer.MayPrint(id(), now);
  return !printer.Waits(id()) || printer.IsTurnOf(id(), now);
}

// `key` is called only while there is room.
template <typename F>
bool Submission::Fits(const Stream& stream, arbiter::Engine engine, F key) const {
  const Share::Room& room = share_.room(engine);
  return room.IsOpen(stream.in_flight != 0) &&
         room.Fits(services_.sharing->Predict(share_, key()).ns);
}

bool Submission::MaySubmit(const Stream& stream, const StreamCommand& command) const {
  if (!share_.limited) return true;
  const auto engine = EngineOf(command);
  if (!engine) return true;
  if (*engine == arbiter::Engine::kCompute && WouldIdleATurn(stream)) return false;
  return Fits(stream, *engine, [&] { return KeyOf(command); });
}

// A turn that others wait for would pass while the kernel waits for a copy, which needs no turn.
bool Submission::WouldIdleATurn(const Stream& stream) const {
  return stream.IsBehindLongCopy() && !services_.sharing->turn_is_endless();
}

// Sections wait here for all that is before them, so they wait for nothing there.
QueueNeed Submission::QueuesFor(const StreamCommand& command) const {
  const auto* work = std::get_if<GraphWork>(&command.work);
  if (work == nullptr || work->upload || work->sections != nullptr) return {};
  return {work->graph.get(), work->graph->queues()};
}

bool Submission::MaySubmit(const Stream& stream, const Chunk& chunk) const {
  if (!share_.limited) return true;
  if (WouldIdleATurn(stream)) return false;
  return Fits(stream, arbiter::Engine::kCompute, [&] { return KeyOf(chunk); });
}

// What the arbiter learns that this session could use at once, if it were its turn.
std::array<arbiter::Work, arbiter::kEngines> Submission::Ready() {
  std::array<arbiter::Work, arbiter::kEngines> ready;
  const auto add = [&](arbiter::Engine engine, const arbiter::LaunchKey& key) {
    arbiter::Work& work = ready[static_cast<size_t>(engine)];
    ++work.pieces;
    work.predicted_ns += services_.sharing->Predict(share_, key).ns;
  };
  streams_.ForEachReady(
      [&](const Stream& stream, const StreamCommand& command) {
        const auto engine = EngineOf(command);
        if (!engine || (*engine == arbiter::Engine::kCompute && WouldIdleATurn(stream))) return;
        add(*engine, KeyOf(command));
      },
      [&](const Stream& stream, const Chunk& chunk) {
        if (!WouldIdleATurn(stream)) add(arbiter::Engine::kCompute, KeyOf(chunk));
      });
  return ready;
}

// While engines are metered, no mark stands for work of two engines.
void Submission::MarkBefore(Stream& stream, const StreamCommand& command) {
  // Without limits a mark may stand for both: the kernels' engine then counts.
  if (!share_.limited || !stream.tally.any || stream.unmarked == 0) return;
  const auto engine = EngineOf(command);
  if (!engine || *engine == stream.tally.engine) return;
  MarkSubmitted(stream);
}

// Before the command is submitted: it takes its chunk along.
void Submission::Count(Stream& stream, const StreamCommand& command) {
  const auto engine = EngineOf(command);
  if (!engine) return;
  if (!stream.tally.any) stream.tally.since_ns = services_.sharing->now_ns();
  stream.tally.Add(*engine);
  if (*engine == arbiter::Engine::kCompute) {
    share_.submitted_kernels += command.commands;
    if (stream.tally.launches == 0) stream.tally.kernel = KernelOf(command);
    stream.tally.launches += command.commands;
  }
  CountCopy(command, *engine, &share_.counts);
  if (services_.tracer != nullptr && services_.tracer->NotesOf(share_.allocation_id)) {
    services_.tracer->Note(command, &stream.tally);
  }
  // Predictions are learned and needed only while the device is shared.
  if (!share_.limited) return;
  const arbiter::LaunchKey key = KeyOf(command);
  const arbiter::Prediction prediction = services_.sharing->Predict(share_, key);
  stream.tally.Add(key, prediction);
  share_.room(*engine).Add(prediction.ns);
}

// `made`: whether it has a CUDA stream. Without one, too, an event counts as recorded and a graph as launched: others may
// wait for the one, and the graph's updates for the other.
CUresult Submission::SubmitWork(Stream& stream, StreamCommand& command, CUresult made) {
  const Driver& cuda = services_.device->cuda();
  if (auto* record = std::get_if<RecordWork>(&command.work)) {
    // The tenant's event is also the mark that reports its completion. For its time, we look at the
    // event itself; an event with no work before it has happened at once, without the device.
    const bool behind_work = stream.unmarked != 0 || !stream.marks.empty();
    AddMark(stream, record->point,
            behind_work && !record->point->timing && LetNotify(stream, record->point.get()));
    return made;
  }
  if (auto* graph = std::get_if<GraphWork>(&command.work)) {
    const bool records = !graph->points.empty();
    const size_t runs = stream.graphs.size();
    const CUresult result = graphs_->SubmitGraph(stream, command.ticket, *graph, made);
    // Its events have timing, whatever the tenant's have.
    if (records && stream.graphs.size() != runs) {
      stream.graphs.back().timing = true;
      BeginTiming(stream);
    }
    return result;
  }
  if (made != CUDA_SUCCESS) return made;
  if (const auto* launch = std::get_if<LaunchWork>(&command.work)) {
    return launches_->SubmitLaunch(*launch, command.payload, stream.cuda);
  }
  if (const auto* launch = std::get_if<LaunchExWork>(&command.work)) {
    return launches_->SubmitLaunchEx(*launch, command.payload, stream.cuda);
  }
  if (const auto* copy = std::get_if<CopyWork>(&command.work)) {
    const wire::Copy::Request& r = copy->request;
    switch (r.kind) {
      case wire::CopyKind::kHostToDevice:
        return cuda.cuMemcpyHtoDAsync_v2(r.destination, reinterpret_cast<const void*>(r.source),
                                         r.size_bytes, stream.cuda);
      case wire::CopyKind::kDeviceToHost:
        return cuda.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(r.destination), r.source,
                                         r.size_bytes, stream.cuda);
      case wire::CopyKind::kDeviceToDevice:
        return cuda.cuMemcpyDtoDAsync_v2(r.destination, r.source, r.size_bytes, stream.cuda);
      case wire::CopyKind::kHostToHost:
        break;  // Copies::EnqueueHostCopy
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const auto* copy = std::get_if<CopyInlineWork>(&command.work)) {
    return copies_->SubmitCopyInline(stream, command, copy->destination);
  }
  if (const auto* fill = std::get_if<FillWork>(&command.work)) {
    const wire::Fill::Request& r = fill->request;
    switch (r.element_bytes) {
      case 1:
        return cuda.cuMemsetD8Async(r.destination, static_cast<uint8_t>(r.value), r.count,
                                    stream.cuda);
      case 2:
        return cuda.cuMemsetD16Async(r.destination, static_cast<uint16_t>(r.value), r.count,
                                     stream.cuda);
      default:
        return cuda.cuMemsetD32Async(r.destination, r.value, r.count, stream.cuda);
    }
  }
  if (const auto* copy = std::get_if<CopyBlockWork>(&command.work)) {
    return SubmitBlock(cuda, *copy, stream.cuda);
  }
  if (const auto* fill = std::get_if<FillBlockWork>(&command.work)) {
    return SubmitFillBlock(cuda, *fill, stream.cuda);
  }
  if (const auto* write = std::get_if<WriteValueWork>(&command.work)) {
    return SubmitWriteValue(cuda, write->request, stream.cuda);
  }
  if (std::holds_alternative<ChunkWork>(command.work)) launches_->SubmitChunk(stream, command);
  return CUDA_SUCCESS;
}

void Submission::WaitFor(Stream& stream, const Dependency& dependency) {
  if (dependency.foreign) {
    // The other session's stream may be gone by now; the point keeps its event.
    const CUevent recorded = dependency.point->done ? nullptr : dependency.point->event;
    if (recorded == nullptr || MakeStream(stream) != CUDA_SUCCESS) return;
    services_.device->Judge(services_.device->cuda().cuStreamWaitEvent(stream.cuda, recorded, 0));
    stream.waits_enqueued = true;
    std::erase_if(stream.foreign, [](const auto& wait) { return wait.second->done; });
    if (stream.foreign.size() == kMaxForeignWaits) stream.foreign.erase(stream.foreign.begin());
    // For LongKernels: time in which work waits for another session is nobody's long kernel.
    stream.foreign.emplace_back(stream.submitted, dependency.point);
    return;
  }
  Stream* other = streams_.FindAny(dependency.stream);
  if (other == nullptr || other == &stream ||
      other->completed >= static_cast<uint64_t>(dependency.ticket)) {
    return;
  }
  CUevent event = nullptr;
  if (dependency.point != nullptr) {
    event = dependency.point->event;
  } else {
    // Waits for the stream's newest command, which may be later than asked for. Everything before
    // it has been submitted already, so this can only wait longer, never in a circle.
    if (other->unmarked != 0 || other->marks.empty()) {
      MarkSubmitted(*other);
    }
    for (auto mark = other->marks.begin(); mark != other->marks.end(); ++mark) {
      if (mark->point->ticket < dependency.ticket) continue;
      event = mark->point->event;
      break;
    }
  }
  // No event: there was no CUDA stream to record it in, or CUDA refused, and RecordMark has given
  // the device up.
  if (event == nullptr || MakeStream(stream) != CUDA_SUCCESS) return;
  services_.device->Judge(services_.device->cuda().cuStreamWaitEvent(stream.cuda, event, 0));
  stream.waits_enqueued = true;
}

// Everything older is submitted and marked first, or nothing might ever tell that it is done. The
// shortest slice runs one action, so an action whose time has come already runs within this call.
void Submission::AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) {
  streams_.Flush(true);
  AddMarks();
  fences_.push_back({static_cast<uint64_t>(ticket), std::move(action)});
  Slice shortest(0);
  RunFences(&shortest);
}

bool Submission::RunFences(Slice* slice) {
  // While a session ends the actions still run: they return what freed and unmapped memory holds.
  if (fences_.empty() || (!serving() && !ending())) return false;
  bool any = false;
  const uint64_t oldest = streams_.OldestUnfinished();
  // In ring order, so a fence never overtakes an older one.
  while (!fences_.empty() && fences_.front().ticket < oldest) {
    const auto action = std::move(fences_.front().action);
    fences_.pop_front();
    action();
    any = true;
    if (slice->Over()) break;
  }
  return any;
}

// At the session's end.
bool Submission::GiveStreams() {
  for (size_t left = Chores::kPiece; left != 0; --left) {
    const std::unique_ptr<Stream> stream = streams_.TakeAny();
    if (stream == nullptr) return true;
    GiveStream(*stream);
  }
  return false;
}

}  // namespace gpuloom::executor
