// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "agent/executor/device/device.h"
#include "agent/executor/event/events.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {

// Costs only an entry of a table: CUDA's event is created when this one is recorded.
void Events::On(wire::Tag<wire::EventCreate>, const wire::EventCreate::Request& request,
                const wire::Record&) {
  Event* event = events_.Add(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  event->timing = request.timing != 0;
}

void Events::On(wire::Tag<wire::EventDestroy>, const wire::EventDestroy::Request& request,
                const wire::Record&) {
  // Waiters hold the point, not the event.
  if (events_.Take(request.event) == nullptr) Refuse(wire::Fatal::kBadHandle);
}

void Events::On(wire::Tag<wire::EventRecord>, const wire::EventRecord::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Event* event = events_.Find(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  // A new point each time, because waiters for the previous record keep waiting for that one.
  event->latest =
      std::make_shared<Point>(services_.device, request.stream, record.ticket, event->timing);
  event->latest->CountFor(tenant_);
  if (event->shared != nullptr) {
    // Other sessions that begin to wait after this wait for this record, even before CUDA has it.
    event->shared->latest = event->latest;
    event->shared->session = id();
  }
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = RecordWork{event->latest};
  streams_.Enqueue(*stream, std::move(command));
}

// A wait is a command without work and with a dependency. It names the point that the event has
// now: a later record does not change what is waited for. Without a point, or with one that is
// done, there is nothing to wait for.
void Events::On(wire::Tag<wire::StreamWaitEvent>, const wire::StreamWaitEvent::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const Event* event = events_.Find(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  StreamCommand command;
  command.ticket = record.ticket;
  if (const SharedEvent* shared = event->shared.get();
      shared != nullptr && shared->session != id()) {
    if (shared->latest != nullptr && !shared->latest->done) {
      // Another session's stream and ticket mean nothing here; the point says it all.
      command.dependencies.push_back({wire::kLegacyStream, wire::Ticket{0}, shared->latest, true});
    }
  } else if (event->latest != nullptr && !event->latest->done) {
    command.dependencies.push_back({event->latest->stream, event->latest->ticket, event->latest});
  }
  streams_.Enqueue(*stream, std::move(command));
}

void Events::On(wire::Tag<wire::EventShare>, const wire::EventShare::Request& request,
                const wire::Record& record) {
  Event* event = events_.Find(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  if (event->shared == nullptr) {
    auto shared = std::make_shared<SharedEvent>();
    // A recording from before the event was shared counts, too.
    shared->latest = event->latest;
    shared->session = id();
    if (!services_.shared->Export(shared)) {
      return Reply<wire::EventShare>(caller, CUDA_ERROR_OPERATING_SYSTEM);
    }
    event->shared = std::move(shared);
    shares_events_ = true;
  }
  const auto [first, second] = event->shared->token;
  Reply<wire::EventShare>(caller, CUDA_SUCCESS, {{{first, second}}});
}

void Events::On(wire::Tag<wire::EventOpen>, const wire::EventOpen::Request& request,
                const wire::Record& record) {
  const SharedEventRef shared = services_.shared->FindEvent(request.token);
  const Caller caller = CallerOf(record);
  if (shared == nullptr) return Reply<wire::EventOpen>(caller, CUDA_ERROR_INVALID_HANDLE);
  Event* event = events_.Add(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  event->shared = shared;
  shares_events_ = true;
  Reply<wire::EventOpen>(caller, CUDA_SUCCESS);
}

// For events that other sessions may have recorded: a tenant sees the tickets of its own streams in
// shared memory.
void Events::On(wire::Tag<wire::EventDone>, const wire::EventDone::Request& request,
                const wire::Record& record) {
  port_->PollStreams();  // the device may have told the tenant of more than we know
  const Event* event = events_.Find(request.event);
  if (event == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const PointRef latest = event->shared != nullptr ? event->shared->latest : event->latest;
  const Caller caller = CallerOf(record);
  if (latest == nullptr || latest->done) return Reply<wire::EventDone>(caller, CUDA_SUCCESS);
  if (request.wait == 0) return Reply<wire::EventDone>(caller, CUDA_ERROR_NOT_READY);
  // At most one for each reply slot.
  event_waiting_.emplace_back(caller, latest);
}

bool Events::AnswerEventWaits() {
  return std::erase_if(event_waiting_, [this](const auto& waiting) {
           if (!waiting.second->done) return false;
           Reply<wire::EventDone>(waiting.first, CUDA_SUCCESS);
           return true;
         }) != 0;
}

void Events::On(wire::Tag<wire::EventElapsed>, const wire::EventElapsed::Request& request,
                const wire::Record& record) {
  port_->PollStreams();  // the device may have told the tenant of more than we know
  const Event* start = events_.Find(request.start);
  const Event* end = events_.Find(request.end);
  if (start == nullptr || end == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  if (!start->timing || !end->timing || start->latest == nullptr || end->latest == nullptr) {
    return Reply<wire::EventElapsed>(caller, CUDA_ERROR_INVALID_HANDLE);
  }
  // A point that is done without having been recorded has no CUDA event, which the driver refuses.
  if (!start->latest->done || !end->latest->done) {
    return Reply<wire::EventElapsed>(caller, CUDA_ERROR_NOT_READY);
  }
  const Point& from = *start->latest;
  const Point& to = *end->latest;
  CUresult result = CUDA_SUCCESS;
  float milliseconds = 0;
  if (from.timing && to.timing) {
    result = services_.device->Judge(
        services_.device->cuda().cuEventElapsedTime(&milliseconds, from.event, to.event));
  } else {
    // A difference of two unsigned numbers, which may be negative.
    milliseconds = static_cast<float>(
        static_cast<double>(static_cast<int64_t>(to.seen_ns - from.seen_ns)) / 1e6);
  }
  wire::EventElapsed::Reply reply{};
  std::memcpy(&reply.milliseconds_bits, &milliseconds, sizeof(milliseconds));
  Reply<wire::EventElapsed>(caller, result, reply);
}

}  // namespace gpuloom::executor
