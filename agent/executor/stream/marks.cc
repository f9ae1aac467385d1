// SPDX-License-Identifier: Apache-2.0
// How far a session's streams are at CUDA: marks behind what was submitted, who is notified of
// them, and what follows when they are reached.
#include <algorithm>
#include <utility>

#include "agent/executor/copy/copies.h"
#include "agent/executor/device/device.h"
#include "agent/executor/event/events.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/launch/launches.h"
#include "agent/executor/printing/printer.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/long_kernels.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/submission.h"
#include "agent/executor/stream/work_counts.h"

namespace gpuloom::executor {
namespace {

// If the device has not reported for this long what it was to report, we query it: a lost device
// reports nothing.
constexpr uint64_t kNotifyTimeoutNs = 200'000;

}  // namespace

// The meter follows one mark of each stream at a time: the oldest that has work for an engine. To
// the meter, later work begins when that mark is seen to be reached.
void Submission::BeginMark(Stream& stream, uint64_t since_ns) {
  if (stream.metered) return;
  for (const Mark& mark : stream.marks) {
    if (!mark.tally.any) continue;
    return BeginMeter(stream, mark.tally, since_ns);
  }
}

void Submission::BeginMeter(Stream& stream, const Tally& tally, uint64_t since_ns) {
  stream.metered = services_.sharing->BeginMark(&share_, tally, since_ns);
  stream.head_ns = std::max(since_ns, tally.since_ns);
}

// A mark's commands wait for older marks of the session only, so the oldest one of all waits for
// none.
void Submission::AddHeads(std::vector<HeadOfStream>* heads) const {
  const Stream* oldest = nullptr;
  for (const Stream* stream : streams_.active()) {
    if (stream->marks.empty()) continue;
    if (oldest == nullptr || stream->marks.front().order < oldest->marks.front().order) {
      oldest = stream;
    }
  }
  for (const Stream* stream : streams_.active()) {
    if (!stream->metered) continue;
    const auto mark = std::find_if(stream->marks.begin(), stream->marks.end(),
                                   [](const Mark& each) { return each.tally.any; });
    const bool is_marked = mark != stream->marks.end();
    const Tally& tally = is_marked ? mark->tally : stream->busy_tally;
    if (tally.engine != arbiter::Engine::kCompute) continue;
    HeadOfStream head;
    head.work = {share_.session, share_.allocation, *stream->metered, stream->head_ns,
                 Share::LevelOf(stream->cuda_priority)};
    head.work.watched = is_marked && stream == oldest && mark == stream->marks.begin() &&
                        !WaitsForOthers(*stream, mark->point->ticket);
    head.launches = tally.launches;
    head.kernel = tally.kernel;
    heads->push_back(head);
  }
}

bool Submission::WaitsForOthers(const Stream& stream, wire::Ticket ticket) {
  return std::any_of(stream.foreign.begin(), stream.foreign.end(), [ticket](const auto& wait) {
    return wait.first < static_cast<uint64_t>(ticket) && !wait.second->done;
  });
}

// Since when the device has had the work that follows the reached marks.
uint64_t Submission::NextSinceNs(const Stream& stream) {
  for (const Mark& mark : stream.marks) {
    if (mark.tally.any) return mark.tally.since_ns;
  }
  return stream.tally.any ? stream.tally.since_ns : UINT64_MAX;
}

// Settles the marks that were just seen to be reached, `commands` of the tenant's commands in all:
// the meter learns what they took, and the stream's next chains are cut by what such work was
// predicted to take.
void Submission::EndMarks(Stream& stream, const Tally& tally, uint32_t commands) {
  if (!tally.any) return;
  const uint64_t now = services_.sharing->now_ns();
  if (tally.engine == arbiter::Engine::kCompute) {
    Observe(now - std::min(now, tally.since_ns), &share_.counts.completion);
    share_.ended_ns[Share::LevelOf(stream.cuda_priority)] += now - std::min(now, stream.head_ns);
  }
  services_.sharing->EndMark(&share_, static_cast<uint32_t>(stream.id), tally,
                             *std::exchange(stream.metered, {}), NextSinceNs(stream), now);
  if (commands == 0) return;
  stream.max_chunk = stream.cut.Update(tally.work.predicted_ns / commands,
                                       services_.sharing->ChainBoundNs(share_, now));
}

void Submission::AddMark(Stream& stream, PointRef point, bool notify) {
  // A stream without anything at CUDA has nothing to wait for: PollStreams finds the mark done.
  if (stream.cuda != nullptr) RecordMark(stream, point.get(), notify);
  streams_.AddMark(stream, std::move(point), now_ns());
  BeginMark(stream, 0);
}

void Submission::MarkSubmitted(Stream& stream, bool may_notify) {
  auto point =
      std::make_shared<Point>(services_.device, stream.id, wire::Ticket{stream.submitted}, false);
  const bool notify = may_notify && LetNotify(stream, point.get());
  AddMark(stream, std::move(point), notify);
}

bool Submission::MayTime(const Stream& stream) const {
  return services_.room->timing().MayRecord(tenant_->timing_streams, stream.timing);
}

void Submission::BeginTiming(Stream& stream) {
  services_.room->timing().Take(&tenant_->timing_streams, &stream.timing);
}

void Submission::EndTiming(Stream& stream) {
  services_.room->timing().Give(&tenant_->timing_streams, &stream.timing);
}

void Submission::FinishGraphs(Stream& stream) {
  for (uint32_t runs = graphs_->FinishGraphs(stream); runs != 0; --runs) EndTiming(stream);
}

void Submission::RecordMark(Stream& stream, Point* point, bool notify) {
  point->timing = point->timing && MayTime(stream);
  if (point->timing) BeginTiming(stream);
  // Before the event: when the tenant has seen the word, no event before it is pending. Unlike the event, the word waits
  // in a hardware queue.
  point->device_notifies =
      notify && streams_.HoldQueue(stream) && words_.Write(stream.cuda, stream.id, point->ticket);
  CUresult result = services_.device->TakeEvent(point->timing, &point->event);
  if (result == CUDA_SUCCESS) {
    result =
        services_.device->Judge(services_.device->cuda().cuEventRecord(point->event, stream.cuda));
  }
  if (result != CUDA_SUCCESS && services_.device->lost() == CUDA_SUCCESS) {
    // Without marks completion would never be seen.
    Log(LogLevel::kError, "cuda: recording an event: %s; the device is given up",
        services_.device->NameOf(result));
    services_.device->Judge(CUDA_ERROR_UNKNOWN);
  }
}

// Returns true if the device may report the stream's newest command as done, before we know of it.
// A thread must be waiting, and nothing that the tenant may then rightly take for done may be
// unknown: other streams' work that this one waited for, what its kernels printed, the time of an
// event that a graph recorded, the end of a destroyed stream, whose id the tenant then gives to the
// next one.
bool Submission::MayNotify(const Stream& stream) const {
  if (!writer()->TenantWaits() || !serving() || stream.destroyed) return false;
  if (events_->shares_events() || !stream.printing.empty() || stream.green != nullptr) return false;
  const auto records = [](const GraphRun& run) { return !run.points.empty(); };
  if (std::any_of(stream.graphs.begin(), stream.graphs.end(), records)) return false;
  // If more is to come, no thread waits for this mark.
  if (!stream.waiting.empty() || MoreToRead()) return false;
  return std::all_of(streams_.active().begin(), streams_.active().end(),
                     [&](const Stream* other) { return other == &stream || other->Idle(); });
}

// A program that sends more while a thread waits keeps some steps ahead of the device, and waits for an older one. To report
// each costs the device 1.4 us between two kernels, while nobody is late for what we see a microsecond later: the next
// steps are there (docs/design/completion.md).
bool Submission::RunsAhead(const Stream& stream) const {
  if (stream.marks.empty()) return false;
  const Point& newest = *stream.marks.back().point;
  return newest.awaited && !(newest.device_notifies && words_.Reached(stream.id, newest.ticket));
}

bool Submission::LetNotify(const Stream& stream, Point* point) const {
  point->awaited = MayNotify(stream);
  return point->awaited && !RunsAhead(stream);
}

bool Submission::AddMarks() {
  bool any = false;
  for (Stream* stream : streams_.TakeUnmarked()) {
    if (stream->unmarked == 0) continue;
    MarkSubmitted(*stream, /*may_notify=*/true);
    any = true;
  }
  return any;
}

// Starts to read what the stream's kernels printed up to `point`, which is reached. Returns true if
// all of it is on its way to the tenant.
bool Submission::TextTaken(Stream& stream, const PointRef& point) {
  const auto reached = static_cast<uint64_t>(point->ticket);
  if (stream.printing.empty() || stream.printing.front() > reached) return true;
  if (stream.taking_text) return false;
  stream.taking_text = true;
  // The stream stays while the point's mark does; the point keeps the event.
  services_.printer->Flush(point->event, [this, &stream, point, reached](std::string text) {
    text_.Add(std::move(text));
    stream.taking_text = false;
    uint32_t launches = 0;
    for (; !stream.printing.empty() && stream.printing.front() <= reached; ++launches) {
      stream.printing.pop_front();
    }
    services_.printer->Ended(launches);
  });
  return false;
}

void Submission::LearnRoundTrip(const PointRef& reached) {
  uint64_t seen_ns = 0;
  uint64_t worked_ns = 0;
  if (timed_.Take(reached, services_.sharing->now_ns(), &seen_ns, &worked_ns)) {
    services_.sharing->round_trip().Learn(seen_ns, worked_ns);
  }
}

bool Submission::TakeDone(Stream& stream) {
  const Driver& cuda = services_.device->cuda();
  bool any = false;
  // Marks seen at the same time are metered as one: how they divided the time is not known.
  Tally tally;
  uint32_t commands = 0;
  while (!stream.marks.empty()) {
    const Mark& mark = stream.marks.front();
    // Querying an event too early costs as much as a launch, and no thread waits for it.
    if (mark.point->device_notifies && now_ns() - mark.made_ns < kNotifyTimeoutNs &&
        !words_.Reached(stream.id, mark.point->ticket)) {
      break;
    }
    const CUevent event = mark.point->event;
    const CUresult result =
        event == nullptr ? CUDA_SUCCESS : services_.device->Judge(cuda.cuEventQuery(event));
    if (result == CUDA_ERROR_NOT_READY || services_.device->lost() != CUDA_SUCCESS) break;
    if (!TextTaken(stream, mark.point)) break;
    if (mark.point->timing && event != nullptr) EndTiming(stream);
    if (mark.point->timed) mark.point->seen_ns = services_.sharing->now_ns();
    if (timed_.any()) LearnRoundTrip(mark.point);
    done_marks_.push_back({mark.order, stream.id, mark.point->ticket});
    if (tally.any && mark.tally.any && tally.engine != mark.tally.engine) {
      EndMarks(stream, std::exchange(tally, {}), std::exchange(commands, 0));
      BeginMark(stream, services_.sharing->now_ns());
    }
    tally.Add(mark.tally);
    commands += mark.commands;
    streams_.CompleteOldestMark(stream, now_ns());
    any = true;
  }
  if (!any) return false;
  EndMarks(stream, tally, commands);
  BeginMark(stream, services_.sharing->now_ns());
  copies_->FreeStaged(stream);
  FinishGraphs(stream);
  launches_->FinishChains(stream);
  return true;
}

// A tenant that sees a stream done may query an event that this stream waited for, and must not be
// told that it is not ready. So completions are published in the order of their marks, and streams
// polled before another was found done are polled again first: that one may have waited for them.
bool Submission::PollStreams() {
  if (streams_.Idle()) return false;
  for (size_t look = streams_.active().size(); look != 0;) {
    size_t newest = 0;
    for (size_t i = 0; i < look; ++i) {
      if (TakeDone(*streams_.active()[i])) newest = i;
    }
    look = newest;
  }
  const bool any = !done_marks_.empty();
  if (any) {
    std::sort(done_marks_.begin(), done_marks_.end(),
              [](const DoneMark& a, const DoneMark& b) { return a.order < b.order; });
    // The device may have reported some of them already, and newer ones.
    for (const DoneMark& mark : done_marks_) writer()->RaiseCompleted(mark.stream, mark.ticket);
    done_marks_.clear();
    port_->Publish();
  }
  for (const auto& ended : streams_.TakeEnded()) {
    GiveStream(*ended);
  }
  return any;
}

}  // namespace gpuloom::executor
