// SPDX-License-Identifier: Apache-2.0
#include "shim/event/event.h"

#include <time.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/pool.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

struct Events {
  HandleTable<Event, wire::kMaxEvents> table;
  Lock lock;
  std::atomic<uint32_t> waits{0};  // threads that hold a place for an answer while they wait
};
constinit Events events;

constexpr int kTicketBits = 52;  // enough for 52 days at a billion commands a second
constexpr uint64_t kTicketMask = (uint64_t{1} << kTicketBits) - 1;

struct RecordPoint {
  wire::StreamId stream;
  wire::Ticket ticket;  // 0: never recorded
};

RecordPoint PointOf(const Event& event) {
  const uint64_t record = event.record.load(std::memory_order_acquire);
  return {wire::StreamId{static_cast<uint32_t>(record >> kTicketBits)},
          wire::Ticket{record & kTicketMask}};
}

// An event knows its context, so threads without a current one may query it and wait for it.
// (NVIDIA's runtime makes no context current for these calls.)
CUresult Find(CUevent handle, Event** event) {
  const CUresult context = NeedContext();
  if (context != CUDA_SUCCESS && context != CUDA_ERROR_INVALID_CONTEXT) return context;
  *event = events.table.Find(handle);
  if (*event != nullptr) return CUDA_SUCCESS;
  return context != CUDA_SUCCESS ? context : CUDA_ERROR_INVALID_HANDLE;
}

void Note(Event* event, wire::StreamId stream, wire::Ticket ticket) {
  event->record.store((uint64_t{static_cast<uint32_t>(stream)} << kTicketBits) |
                          (static_cast<uint64_t>(ticket) & kTicketMask),
                      std::memory_order_release);
}

// Needs no reply: the id is ours, and the ring's order has the executor make the event before
// anything that names it.
CUresult Make(unsigned flags, CUevent* handle) {
  Event* event;
  {
    Holding holding(&events.lock);
    event = events.table.Take(events.lock);
  }
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->flags = flags;
  const uint32_t timing = (flags & CU_EVENT_DISABLE_TIMING) == 0 ? 1 : 0;
  const CUresult result = session.Post<wire::EventCreate>({IdOf(event), timing});
  if (result != CUDA_SUCCESS) {
    Holding holding(&events.lock);
    events.table.Give(events.lock, event);
    return result;
  }
  *handle = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

// The handle is removed first, so that of several threads only one destroys the event. The id may
// be reused once the command is in the ring: a new event's command comes after it.
CUresult Destroy(Event* event) {
  {
    Holding holding(&events.lock);
    if (!events.table.Give(events.lock, event, /*reuse=*/false)) return CUDA_ERROR_INVALID_HANDLE;
  }
  graph::ForgetEvent(reinterpret_cast<CUevent>(event));
  ForgetContextObject(ContextObjectKind::kEvent, reinterpret_cast<uint64_t>(event));
  const CUresult result = session.Post<wire::EventDestroy>({IdOf(event)});
  Holding holding(&events.lock);
  events.table.Reuse(events.lock, events.table.IdOf(event));
  return result;
}

// For shared events, whose latest record may be another process's. `wait`: the answer comes when it
// is done.
CUresult AskWhetherDone(const Event* event, bool wait) {
  wire::EventDone::Reply reply;
  return session.Call<wire::EventDone>({IdOf(event), wait ? 1u : 0u}, &reply);
}

// A reply slot is occupied until the event is done, and the call that gets it done may need one,
// too. So at most half of the slots are used for this; further threads poll.
CUresult WaitUntilDone(CUevent handle) {
  constexpr uint32_t kMostAnswers = wire::kReplySlots / 2;
  constexpr timespec kNap = {0, 1'000'000};
  for (;;) {
    // It may be destroyed meanwhile, and the executor may be asked only for what there is.
    Event* event;
    CUDA_RETURN_IF_ERROR(Find(handle, &event));
    const bool waits = events.waits.fetch_add(1) < kMostAnswers;
    const CUresult result = AskWhetherDone(event, waits);
    events.waits.fetch_sub(1);
    if (waits || result != CUDA_ERROR_NOT_READY) return result;
    nanosleep(&kNap, nullptr);
  }
}

// Another process may learn of a shared event's record in other ways than through us, and whatever
// it then does with the event must see this record. So this waits until the executor has read it.
void LetOthersSee(const Event* event) {
  if (event->shared.load(std::memory_order_acquire)) (void)AskWhetherDone(event, /*wait=*/false);
}

CUresult RecordOn(Event* event, wire::StreamId stream) {
  wire::Ticket ticket{0};
  CUDA_RETURN_IF_ERROR(session.PostOnStream<wire::EventRecord>(
      stream, 0,
      [&](wire::EventRecord::Request& request, uint8_t*) {
        request = {IdOf(event), stream};
      },
      &ticket));
  Note(event, stream, ticket);
  LetOthersSee(event);
  return CUDA_SUCCESS;
}

// CUDA's order of checks: handles, captures, timing, whether both were recorded, whether both are
// done. Only then is the executor asked, which has the times.
CUresult Elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event* start;
  Event* end;
  CUDA_RETURN_IF_ERROR(Find(start_handle, &start));
  CUDA_RETURN_IF_ERROR(Find(end_handle, &end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // as the driver says, strangely
  for (const CUevent handle : {start_handle, end_handle}) {
    CUDA_RETURN_IF_ERROR(graph::CheckEventTime(handle));
  }
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  for (const Event* event : {start, end}) {
    if (PointOf(*event).ticket == wire::Ticket{0}) return CUDA_ERROR_INVALID_HANDLE;
  }
  for (const Event* event : {start, end}) {
    const RecordPoint point = PointOf(*event);
    if (!session.Done(point.stream, point.ticket)) {
      const CUresult result = session.HealthOfPoller();
      return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_READY;
    }
  }
  wire::EventElapsed::Reply reply;
  const CUresult result = session.Call<wire::EventElapsed>({IdOf(start), IdOf(end)}, &reply);
  if (result == CUDA_SUCCESS) memcpy(milliseconds, &reply.milliseconds_bits, sizeof(float));
  return result;
}

}  // namespace

const Event* FindEvent(CUevent handle) { return events.table.Find(handle); }
wire::EventId IdOf(const Event* event) { return wire::EventId{events.table.IdOf(event)}; }

void NoteRecord(CUevent handle, wire::StreamId stream, wire::Ticket ticket) {
  // Noted after the command is in the ring, whose ticket it needs. Of two threads that record one
  // event, the later note wins, as CUDA leaves their order open.
  if (Event* event = events.table.Find(handle); event != nullptr) Note(event, stream, ticket);
}

CUresult RecordEvent(CUevent handle, wire::StreamId stream) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  CUresult captured;
  if (graph::CapturesRecord(RefOf(stream), handle, 0, &captured)) return captured;
  return RecordOn(event, stream);
}

CUresult MakeOwnEvent(CUevent* handle) { return Make(CU_EVENT_DISABLE_TIMING, handle); }

CUresult CheckLaunchEvent(CUevent handle) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  constexpr uint32_t kWrong = CU_EVENT_INTERPROCESS;
  return (event->flags & CU_EVENT_DISABLE_TIMING) == 0 || (event->flags & kWrong) != 0
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult MakeStreamWait(wire::StreamId stream, CUevent handle) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  const RecordPoint point = PointOf(*event);
  if (event->shared.load(std::memory_order_acquire)) {
    const CUresult result = session.PostOnStream<wire::StreamWaitEvent>(
        stream, 0, [&](wire::StreamWaitEvent::Request& request, uint8_t*) {
          request = {stream, IdOf(event)};
        });
    LetOthersSee(event);
    return result;
  }
  // Never recorded, done, or recorded in the same stream: there is nothing to wait for.
  if (point.ticket == wire::Ticket{0} || point.stream == stream ||
      session.Done(point.stream, point.ticket)) {
    return CUDA_SUCCESS;
  }
  return session.PostOnStream<wire::StreamWaitEvent>(
      stream, 0, [&](wire::StreamWaitEvent::Request& request, uint8_t*) {
        request = {stream, IdOf(event)};
      });
}

// Shared events have no timing, in CUDA either.
CUresult OpenEvent(const wire::Token& token, CUevent* handle) {
  Event* event;
  {
    Holding holding(&events.lock);
    event = events.table.Take(events.lock);
  }
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->shared.store(true, std::memory_order_release);
  wire::EventOpen::Reply reply;
  const CUresult result = session.Call<wire::EventOpen>({IdOf(event), 0, token}, &reply);
  if (result != CUDA_SUCCESS) {
    Holding holding(&events.lock);
    events.table.Give(events.lock, event);
    return result;
  }
  *handle = reinterpret_cast<CUevent>(event);
  NoteContextObject(ContextObjectKind::kEvent, reinterpret_cast<uint64_t>(event));
  return CUDA_SUCCESS;
}

CUresult ShareEvent(CUevent handle, wire::Token* token) {
  Event* event = events.table.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  wire::EventShare::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::EventShare>({IdOf(event)}, &reply));
  // Set only now: until another process could open it, its state here was sufficient.
  event->shared.store(true, std::memory_order_release);
  *token = reply.token;
  return CUDA_SUCCESS;
}

void ReleaseAllEvents() {
  for (uint32_t id = 1; id <= events.table.used(); ++id) {
    if (Event* event = events.table.At(id); event != nullptr) (void)Destroy(event);
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuEventRecord(CUevent event, CUstream stream, DefaultStream null_means) {
  return cuEventRecordWithFlags(event, stream, 0, null_means);
}

CUresult api::cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags,
                                     DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(stream_handle, null_means, &stream));
  CUresult captured;
  if (graph::CapturesRecord(RefOf(stream), handle, flags, &captured)) return captured;
  return RecordOn(event, stream);
}

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  // CUDA requires it: there are no times across processes.
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = Make(flags, handle);
  if (result == CUDA_SUCCESS)
    NoteContextObject(ContextObjectKind::kEvent, reinterpret_cast<uint64_t>(*handle));
  return result;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  return Destroy(event);
}
CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

// An event that was never recorded counts as done, as in CUDA: stream 0 and ticket 0 always are.
CUresult cuEventQuery(CUevent handle) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  CUDA_RETURN_IF_ERROR(graph::CheckEventUse(handle));
  if (event->shared.load(std::memory_order_acquire)) return AskWhetherDone(event, /*wait=*/false);
  const RecordPoint point = PointOf(*event);
  if (session.Done(point.stream, point.ticket)) return CUDA_SUCCESS;
  const CUresult result = session.HealthOfPoller();
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  Event* event;
  CUDA_RETURN_IF_ERROR(Find(handle, &event));
  CUDA_RETURN_IF_ERROR(graph::CheckEventUse(handle));
  // The executor decides, because another process may have recorded it; and the wait must be seen
  // by whoever records it next.
  if (event->shared.load(std::memory_order_acquire)) {
    const CUresult result = WaitUntilDone(handle);
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  const RecordPoint point = PointOf(*event);
  // The record that was the latest when the wait began, as CUDA has it.
  CUDA_RETURN_IF_ERROR(session.WaitFor(point.stream, point.ticket));
  TrimAtSynchronisation();
  return session.TakeAsyncError();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return Elapsed(milliseconds, start, end);
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return Elapsed(milliseconds, start, end);
}

}  // extern "C"
