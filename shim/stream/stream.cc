// SPDX-License-Identifier: Apache-2.0
#include "shim/stream/stream.h"

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/context/green_context.h"
#include "shim/event/context_order.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/memory/migration.h"
#include "shim/memory/pool.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Streams {
  HandleTable<Stream, wire::kMaxStreams> table;
  Lock steady;  // held while commands go behind several streams: none of them ends
  Lock lock;
  // Ids of destroyed streams whose work may still run, oldest first.
  Growing<uint32_t> retired GPULOOM_GUARDED_BY(lock);
  // 1 and 2 belong to the legacy and the per-thread stream.
  uint64_t last_serial GPULOOM_GUARDED_BY(lock) = 2;
  // By id, also of destroyed streams: whether it takes no part in the legacy stream's barrier.
  std::atomic<bool> nonblocking[wire::kMaxStreams] = {};
  // By id, too: the green context that it is in, or null. Cleared before the id is reused, because
  // another thread may be ending the streams of the old context.
  std::atomic<GreenContext*> green[wire::kMaxStreams] = {};
};
constinit Streams streams;

CUstream const kLegacyHandle = reinterpret_cast<CUstream>(uintptr_t{1});     // CU_STREAM_LEGACY
CUstream const kPerThreadHandle = reinterpret_cast<CUstream>(uintptr_t{2});  // CU_STREAM_PER_THREAD

GreenContext* GreenOf(uint32_t id) { return streams.green[id].load(std::memory_order_acquire); }

// A stream to which another thread adds meanwhile may be called done.
bool IsDone(uint32_t id) {
  return session.Done(wire::StreamId{id}, session.LastTicket(wire::StreamId{id}));
}

// Frees the ids of destroyed streams whose last command, the destruction itself, is done. Before
// that a new stream with this id would take the old one's progress for its own.
void ReuseRetiredLocked() GPULOOM_REQUIRES(streams.lock) {
  for (size_t i = 0; i < streams.retired.count();) {
    const uint32_t id = streams.retired[i];
    if (IsDone(id)) {
      streams.green[id].store(nullptr, std::memory_order_release);
      streams.table.Reuse(streams.lock, id);
      streams.retired.Remove(i);
    } else {
      ++i;
    }
  }
}

// When all ids are in use or retired, waits for the stream that was destroyed first: CUDA has no
// limit on streams that come and go. Null when the program holds them all.
Stream* TakeStream() {
  for (;;) {
    uint32_t oldest;
    {
      Holding holding(&streams.lock);
      ReuseRetiredLocked();
      if (Stream* stream = streams.table.Take(streams.lock); stream != nullptr) {
        stream->serial = ++streams.last_serial;
        return stream;
      }
      if (streams.retired.count() == 0) return nullptr;
      oldest = streams.retired[0];
    }
    if (session.WaitForStream(wire::StreamId{oldest}) != CUDA_SUCCESS) return nullptr;
  }
}

void Retire(Stream* stream) {
  Holding holding(&streams.lock);
  const uint32_t id = streams.table.IdOf(stream);
  streams.table.Give(streams.lock, stream, /*reuse=*/false);
  (void)streams.retired.Push(id);  // without memory the id is lost, which only costs an id
}

// Several threads may end a stream at the same time: by its handle, with its context, or because the stream's thread
// ends. Returns true for one of them; the others then find the stream not in use. A stream that is still being made
// is not ended.
bool TakeFromUse(Stream* stream, StreamUse then, StreamUse* was) GPULOOM_EXCLUDES(streams.steady) {
  Holding holding(&streams.steady);
  *was = stream->use.load();
  if (*was == StreamUse::kNone || *was == then) return false;
  stream->use.store(then);
  return true;
}

CUresult EndAtExecutor(Stream* stream) {
  const wire::StreamId id = IdOf(stream);
  graph::ForgetStream(RefOf(id));
  DetachMigrating(id);
  ForgetContextObject(ContextObjectKind::kStream, reinterpret_cast<uint64_t>(stream));
  // The stream's last command: its id is reused only when the executor has ended the stream.
  return session.PostOnStream<wire::StreamDestroy>(
      id, 0, [&](wire::StreamDestroy::Request& request, uint8_t*) { request = {id}; });
}

// Returns at once, as CUDA does; the stream's work continues, and its id is not reused before that
// is done. An orphan's stream has ended at the executor already.
CUresult DestroyStream(Stream* stream) {
  StreamUse was;
  if (!TakeFromUse(stream, StreamUse::kNone, &was)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = was == StreamUse::kOrphan ? CUDA_SUCCESS : EndAtExecutor(stream);
  Retire(stream);
  return result;
}

CUresult CreateAtExecutor(const Stream& stream) {
  const bool nonblocking = (stream.flags & CU_STREAM_NON_BLOCKING) != 0;
  wire::StreamCreate::Reply reply;
  return session.Call<wire::StreamCreate>({IdOf(&stream), nonblocking ? 1u : 0u, stream.priority},
                                          &reply);
}

CUresult CreateAtExecutor(const Stream& stream, const GreenContext* green) {
  wire::GreenStreamCreate::Reply reply;
  return session.Call<wire::GreenStreamCreate>({IdOf(&stream), IdOf(green), 0, stream.priority},
                                               &reply);
}

// `green`: the context in which it is made, or null. Streams of a green context are non-blocking,
// whatever the flags say; the driver does the same.
CUresult MakeStream(uint32_t flags, int priority, StreamUse use, Stream** out,
                    GreenContext* green = nullptr) {
  if (green != nullptr) flags |= CU_STREAM_NON_BLOCKING;
  Stream* stream = TakeStream();
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const wire::DeviceSnapshot& device = session.device();
  // CUDA moves priorities into the device's range. Lower numbers are more urgent.
  if (priority > device.stream_priority_least) priority = device.stream_priority_least;
  if (priority < device.stream_priority_greatest) priority = device.stream_priority_greatest;
  stream->flags = flags;
  stream->priority = priority;
  const uint32_t id = streams.table.IdOf(stream);
  ResetStreamAttributes(wire::StreamId{id});
  streams.green[id].store(green, std::memory_order_release);
  streams.nonblocking[id].store((flags & CU_STREAM_NON_BLOCKING) != 0, std::memory_order_release);
  const CUresult result =
      green == nullptr ? CreateAtExecutor(*stream) : CreateAtExecutor(*stream, green);
  if (result != CUDA_SUCCESS) {
    Holding holding(&streams.lock);
    streams.green[id].store(nullptr, std::memory_order_release);
    streams.table.Give(streams.lock, stream);
    return result;
  }
  if (use == StreamUse::kProgram && green == nullptr) {
    NoteContextObject(ContextObjectKind::kStream, reinterpret_cast<uint64_t>(stream));
  }
  // Visible to StreamsOf from here on, and ordered right after: whichever of the two comes second
  // sees the other (see OrderNewStream and StreamsOf).
  stream->use.store(use);
  if (use != StreamUse::kOwn) {
    const CUcontext context = use == StreamUse::kThread ? nullptr
                              : green != nullptr        ? ContextOf(*stream)
                                                        : CurrentThread().current;
    if (const CUresult ordered = OrderNewStream(wire::StreamId{id}, context);
        ordered != CUDA_SUCCESS) {
      (void)DestroyStream(stream);
      return ordered;
    }
  }
  *out = stream;
  return CUDA_SUCCESS;
}

// The calling thread's own stream, made at its first use in each epoch: a reset has ended the older
// one. 0, the legacy stream's id, is that of none.
CUresult ThreadStream(wire::StreamId* id) {
  ThreadState& thread = CurrentThread();
  const uint32_t epoch = ContextEpoch();
  if (thread.stream == wire::kLegacyStream || thread.stream_epoch != epoch) {
    Stream* stream = nullptr;
    CUDA_RETURN_IF_ERROR(MakeStream(CU_STREAM_DEFAULT, 0, StreamUse::kThread, &stream));
    thread.stream = wire::StreamId{streams.table.IdOf(stream)};
    thread.stream_epoch = epoch;
    HookThreadExit();
  }
  *id = thread.stream;
  return CUDA_SUCCESS;
}

// Returns true if the stream's work precedes what the legacy stream does next.
bool Blocks(uint32_t id) { return !streams.nonblocking[id].load(std::memory_order_acquire); }

CUresult Resolve(CUstream handle, DefaultStream null_means, wire::StreamId* id) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return FindStream(handle, null_means, id);
}

}  // namespace

const Stream* StreamAt(wire::StreamId id) {
  return id == wire::kLegacyStream ? nullptr : streams.table.At(static_cast<uint32_t>(id));
}

CUcontext ContextOf(const Stream& stream) {
  const GreenContext* green = GreenOf(streams.table.IdOf(&stream));
  return green != nullptr
             ? reinterpret_cast<CUcontext>(green->context)
             : ContextOf(ContextObjectKind::kStream, reinterpret_cast<uint64_t>(&stream));
}

// On the path of every launch: handles are looked up without a lock.
CUresult FindStream(CUstream handle, DefaultStream null_means, wire::StreamId* id) {
  if ((handle == nullptr && null_means == DefaultStream::kLegacy) || handle == kLegacyHandle) {
    *id = wire::kLegacyStream;
    if (GreenContextsUsed()) [[unlikely]] {
      if (const GreenContext* green = CurrentGreenContext()) *id = green->default_stream;
    }
    return CUDA_SUCCESS;
  }
  if (handle == nullptr || handle == kPerThreadHandle) {
    // CUDA has no stream of a thread's own in a green context.
    const bool green = GreenContextsUsed() && CurrentGreenContext() != nullptr;
    return green ? CUDA_ERROR_INVALID_HANDLE : ThreadStream(id);
  }
  const Stream* stream = streams.table.Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->use.load(std::memory_order_relaxed) == StreamUse::kOrphan) [[unlikely]] {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *id = wire::StreamId{streams.table.IdOf(stream)};
  return CUDA_SUCCESS;
}

CUresult SynchronizeStream(wire::StreamId id) {
  CUresult result = session.WaitForStream(id);
  if (id != wire::kLegacyStream) return result;
  for (uint32_t i = 1; result == CUDA_SUCCESS && i <= streams.table.used(); ++i) {
    if (Blocks(i)) result = session.WaitForStream(wire::StreamId{i});
  }
  return result;
}

// A blocking stream's own commands may all be done while the legacy stream's are not: a mark, which
// waits for both, tells.
CUresult SynchronizeForTurn(wire::StreamId id) {
  if (id == wire::kLegacyStream || !BlocksLegacy(id)) {
    CUDA_RETURN_IF_ERROR(SynchronizeStream(id));
  } else {
    wire::Ticket ticket;
    CUDA_RETURN_IF_ERROR(MarkStream(id, &ticket));
    CUDA_RETURN_IF_ERROR(session.WaitFor(id, ticket));
  }
  return session.TakeAsyncError();
}

CUresult MarkStream(wire::StreamId id, wire::Ticket* ticket) {
  return session.PostOnStream<wire::StreamMark>(
      id, 0, [&](wire::StreamMark::Request& request, uint8_t*) { request = {id}; }, ticket);
}

bool BlocksLegacy(wire::StreamId id) { return Blocks(static_cast<uint32_t>(id)); }

int PriorityOf(wire::StreamId id) {
  const Stream* stream = StreamAt(id);
  return stream == nullptr ? 0 : stream->priority;
}

CUresult MakeGreenStream(GreenContext* green, int priority, Stream** out) {
  return MakeStream(CU_STREAM_NON_BLOCKING, priority, StreamUse::kProgram, out, green);
}

wire::StreamId IdOf(const Stream* stream) { return wire::StreamId{streams.table.IdOf(stream)}; }

CUresult WaitForStreamsOf(const GreenContext& green) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 1; result == CUDA_SUCCESS && i <= streams.table.used(); ++i) {
    if (GreenOf(i) == &green) result = session.WaitForStream(wire::StreamId{i});
  }
  return result;
}

// The default stream has no handle that the program could still hold, so it is gone for good; the
// others become orphans, whose handles answer CONTEXT_IS_DESTROYED until they are destroyed.
void EndStreamsOf(const GreenContext& green) {
  for (uint32_t i = 1; i <= streams.table.used(); ++i) {
    if (GreenOf(i) != &green) continue;
    Stream* stream = streams.table.At(i);  // null: the program has destroyed it
    if (stream != nullptr && green.default_stream == wire::StreamId{i}) {
      (void)DestroyStream(stream);
    } else if (StreamUse was; stream != nullptr && TakeFromUse(stream, StreamUse::kOrphan, &was)) {
      (void)EndAtExecutor(stream);
    }
    streams.green[i].store(nullptr, std::memory_order_release);
  }
}

CUresult GreenContextOf(CUstream handle, DefaultStream null_means, GreenContext** green) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &id));
  *green = GreenOf(static_cast<uint32_t>(id));
  return CUDA_SUCCESS;
}

bool IsStreamIdle(wire::StreamId id) { return IsDone(static_cast<uint32_t>(id)); }

// Not analysed: an object holds the lock from its constructor to its destructor, and the header, which would have to say
// so, does not know the lock.
StreamsOf::StreamsOf(CUcontext context) GPULOOM_NO_THREAD_SAFETY_ANALYSIS
    : context_(context),
      of_green_(IsGreenContext(context)) {
  streams.steady.Acquire();
}
StreamsOf::~StreamsOf() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { streams.steady.Release(); }

// Not kOwn ones: the shim's streams carry no work that an event of the program could mean.
bool StreamsOf::Next(wire::StreamId* id) {
  while (++last_ <= streams.table.used()) {
    const Stream* stream = streams.table.At(last_);
    if (stream == nullptr) continue;
    const StreamUse use = stream->use.load();
    const bool in_primary = GreenOf(last_) != nullptr && context_ == PrimaryContext();
    if ((use == StreamUse::kThread && !of_green_) ||
        (use == StreamUse::kProgram && (in_primary || ContextOf(*stream) == context_))) {
      *id = wire::StreamId{last_};
      return true;
    }
  }
  return false;
}

CUresult MakeOwnStream(unsigned flags, wire::StreamId* id) {
  Stream* stream = nullptr;
  const CUresult result = MakeStream(flags, 0, StreamUse::kOwn, &stream);
  if (result == CUDA_SUCCESS) *id = wire::StreamId{streams.table.IdOf(stream)};
  return result;
}

void EndOwnStream(wire::StreamId id) {
  if (Stream* stream = streams.table.At(static_cast<uint32_t>(id)); stream != nullptr) {
    (void)DestroyStream(stream);
  }
}

// Called while the thread ends, perhaps after a reset or the session's end: then there is nothing
// to end.
void ReleaseThreadStream(ThreadState* thread) {
  if (thread->stream == wire::kLegacyStream) return;
  const bool current = thread->stream_epoch == ContextEpoch();
  const wire::StreamId id = thread->stream;
  thread->stream = wire::kLegacyStream;
  if (!current || session.Check() != CUDA_SUCCESS) return;
  if (Stream* stream = streams.table.At(static_cast<uint32_t>(id)); stream != nullptr) {
    (void)DestroyStream(stream);
  }
}

// Also releases the shim's own streams, whose owners are notified as well, or notice by the epoch.
void ReleaseAllStreams() {
  for (uint32_t id = 1; id <= streams.table.used(); ++id) {
    if (Stream* stream = streams.table.At(id); stream != nullptr) (void)DestroyStream(stream);
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuStreamQuery(CUstream handle, DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &id));
  CUDA_RETURN_IF_ERROR(RefuseToWait(id));
  bool done = IsDone(static_cast<uint32_t>(id));
  if (id == wire::kLegacyStream) {
    for (uint32_t i = 1; done && i <= streams.table.used(); ++i) done = !Blocks(i) || IsDone(i);
  }
  // A query that finds everything done counts as a synchronization.
  if (done) return session.TakeAsyncError();
  // Programs poll in loops: one must not go on for ever when the executor has ended.
  const CUresult result = session.HealthOfPoller();
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_READY;
}

CUresult api::cuStreamSynchronize(CUstream handle, DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &id));
  CUDA_RETURN_IF_ERROR(RefuseToWait(id));
  CUDA_RETURN_IF_ERROR(SynchronizeStream(id));
  TrimAtSynchronisation();
  return session.TakeAsyncError();
}

CUresult api::cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags,
                                DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &id));
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (FindEvent(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result;
  if (graph::CapturesWait(RefOf(id), event, flags, &result)) return result;
  return MakeStreamWait(id, event);
}

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream = nullptr;
  GreenContext* green = GreenContextsUsed() ? CurrentGreenContext() : nullptr;
  const CUresult result = MakeStream(flags, priority, StreamUse::kProgram, &stream, green);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUstream>(stream);
  return result;
}
CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Stream* stream = streams.table.Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream->use.load() == StreamUse::kOrphan ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                  : DestroyStream(stream);
}
CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

}  // extern "C"
