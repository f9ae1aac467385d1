// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/context.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "agent/softgpu/driver/array.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "agent/softgpu/driver/view.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/runtime_tables.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// A deque, because contexts are named by their addresses and none is ever freed.
struct Contexts {
  Mutex mutex;
  std::deque<Context> all GPULOOM_GUARDED_BY(mutex);
};

Contexts& Everything() {
  static auto* contexts = new Contexts;  // never destroyed: stream threads may use it during exit
  return *contexts;
}

// Trivial on purpose: the CUDA runtime still calls after this thread's destructors have run.
thread_local Context* stack[kMaxContextDepth];
thread_local int depth = 0;
thread_local uint64_t thread_key = 0;

// Closes the ended thread's default streams, in every context where it had one.
struct ThreadEnd {
  ~ThreadEnd() {
    for (Context* context : AllContexts()) context->CloseThreadStream(thread_key);
  }
};

uint64_t ThreadKey() {
  static std::atomic<uint64_t> next{1};
  if (thread_key == 0) {
    thread_key = next.fetch_add(1);
    thread_local ThreadEnd
        end;  // constructed here, so only threads that use their default stream pay
    static_cast<void>(end);
  }
  return thread_key;
}

Context* Add(Device& device, bool primary, std::unique_ptr<Green> green = nullptr) {
  Contexts& contexts = Everything();
  const MutexLock lock(contexts.mutex);
  return &contexts.all.emplace_back(device, primary, std::move(green));
}

uint64_t NextContextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

Context::Context(Device& of, bool is_primary, std::unique_ptr<Green> as_green)
    : device(of), primary(is_primary), id(NextContextId()), green(std::move(as_green)) {}
Context::~Context() = default;

// What a stream's next work has to wait for, as points of other streams. The legacy stream waits for all blocking ones,
// and they for it; streams made with CU_STREAM_NON_BLOCKING take no part in this.
std::vector<Point> Context::BarriersLocked(const Stream& stream) {
  std::vector<Point> points;
  const auto add = [&](const std::shared_ptr<Stream>& other) {
    Point tail = other->Tail();
    if (!tail.Done()) points.push_back(std::move(tail));
  };
  if (stream.kind == Stream::Kind::kLegacy) {
    for (const auto& other : streams_) {
      if (other->blocking()) add(other);
    }
  } else if (stream.blocking() && legacy_ != nullptr) {
    add(legacy_);
  }
  return points;
}

// All pushes into a context happen under one lock, so the barriers of two threads that push at once
// cannot cross: a point lies always in the past of the work that waits for it (stream.h). Gates
// that are done are dropped on this occasion.
Point Context::Enqueue(Stream& stream, Work work) {
  const MutexLock lock(streams_mutex_);
  for (Point& point : BarriersLocked(stream)) work.after.push_back(std::move(point));
  std::erase_if(gates_, [](const Point& gate) { return gate.Done(); });
  work.after.insert(work.after.end(), gates_.begin(), gates_.end());
  std::erase_if(before_code_, [](const Point& point) { return point.Done(); });
  if (work.on_device) {
    work.after.insert(work.after.end(), before_code_.begin(), before_code_.end());
  }
  return stream.Push(std::move(work));
}

void Context::NoteLoadedCode() {
  const MutexLock lock(streams_mutex_);
  const auto add = [this](Stream& stream) GPULOOM_REQUIRES(streams_mutex_) {
    if (Point running = stream.Running(); running.stream != nullptr) {
      before_code_.push_back(std::move(running));
    }
  };
  if (legacy_ != nullptr) add(*legacy_);
  for (const auto& stream : streams_) add(*stream);
}

std::vector<Point> Context::PointsOf(Stream& stream) {
  const MutexLock lock(streams_mutex_);
  std::vector<Point> points;
  // Any other stream waits for the legacy one before its own work, so its tail says all. The legacy
  // stream's tail says nothing of what other streams got since.
  if (stream.kind == Stream::Kind::kLegacy) points = BarriersLocked(stream);
  points.push_back(stream.Tail());
  return points;
}

std::vector<Point> Context::AllPoints() {
  const MutexLock lock(streams_mutex_);
  return AllPointsLocked();
}

std::vector<Point> Context::AllPointsLocked() {
  std::vector<Point> points;
  if (legacy_ != nullptr) points.push_back(legacy_->Tail());
  for (const auto& stream : streams_) points.push_back(stream->Tail());
  return points;
}

void Context::NeedThreadBytes(size_t bytes) {
  {
    const MutexLock lock(mutex);
    if (bytes <= thread_bytes) return;
  }
  WaitFor(AllPoints());
  const MutexLock lock(mutex);
  thread_bytes = std::max(thread_bytes, bytes);
}

void Context::NeedEvents(size_t alive) {
  constexpr size_t kOfABlock = 2044;
  {
    const MutexLock lock(mutex);
    if (alive <= prepared_events) return;
    prepared_events += kOfABlock;
  }
  const MutexLock lock(streams_mutex_);
  WaitFor(AllPointsLocked());
}

std::vector<std::shared_ptr<Stream>> Context::Streams() {
  const MutexLock lock(streams_mutex_);
  return streams_;
}

void Context::WaitBefore(Point point) {
  const MutexLock lock(streams_mutex_);
  gates_.push_back(std::move(point));
}

// Non-blocking, so that recording an event of the whole context stands in nobody's way.
std::shared_ptr<Stream> Context::RecordingStream() {
  const MutexLock lock(streams_mutex_);
  if (recording_ == nullptr) {
    recording_ = std::make_shared<Stream>(*this, Stream::Kind::kCreated, CU_STREAM_NON_BLOCKING, 0);
    streams_.push_back(recording_);
  }
  return recording_;
}

std::shared_ptr<Stream> Context::LegacyStream() {
  const MutexLock lock(streams_mutex_);
  if (legacy_ == nullptr) {
    // A green context's default stream has no barriers with the primary one's.
    legacy_ = green == nullptr ? std::make_shared<Stream>(*this, Stream::Kind::kLegacy, 0, 0)
                               : std::make_shared<Stream>(*this, Stream::Kind::kCreated,
                                                          CU_STREAM_NON_BLOCKING, 0);
  }
  return legacy_;
}

std::shared_ptr<Stream> Context::ThreadStream() {
  const uint64_t key = ThreadKey();
  const MutexLock lock(streams_mutex_);
  std::shared_ptr<Stream>& stream = by_thread_[key];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>(*this, Stream::Kind::kPerThread, 0, 0);
    streams_.push_back(stream);
  }
  return stream;
}

std::shared_ptr<Stream> Context::MakeStream(unsigned with_flags, int priority) {
  // The legacy stream does not wait for streams of a green context, nor they for it, whatever their flags.
  if (green != nullptr) with_flags |= CU_STREAM_NON_BLOCKING;
  auto stream = std::make_shared<Stream>(*this, Stream::Kind::kCreated, with_flags, priority);
  {
    const MutexLock lock(streams_mutex_);
    if (streams_.size() < prepared_streams_) {
      streams_.push_back(stream);
      return stream;
    }
    prepared_streams_ += kStreamsOfABlock;
  }
  std::vector<Point> others;
  for (Context* context : AllContexts()) {
    if (&context->device != &device || context == this) continue;
    for (Point& point : context->AllPoints()) others.push_back(std::move(point));
  }
  const MutexLock lock(streams_mutex_);
  WaitFor(others);
  WaitFor(AllPointsLocked());
  streams_.push_back(stream);
  return stream;
}

void Context::CloseStream(const std::shared_ptr<Stream>& stream) {
  const MutexLock lock(streams_mutex_);
  stream->Close();
  DropFinishedLocked();
}

void Context::CloseThreadStream(uint64_t key) {
  const MutexLock lock(streams_mutex_);
  const auto found = by_thread_.find(key);
  if (found == by_thread_.end()) return;
  found->second->Close();
  by_thread_.erase(found);
  DropFinishedLocked();
}

// Others may still have to wait for what is in a closed stream, so it stays listed until drained.
void Context::DropFinishedLocked() {
  std::erase_if(streams_, [](const auto& stream) { return stream->Finished(); });
}

void Context::Activate(unsigned with_flags) {
  const MutexLock lock(mutex);
  flags = with_flags;
  cache_config = CU_FUNC_CACHE_PREFER_NONE;
  shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  // The defaults of NVIDIA's driver.
  limits = {};
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  thread_bytes = 1024;
  prepared_events = 2044;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  alive.store(true);
}

// The order matters. No new call gets in once `alive` is false; then its work ends; then come the
// things that hold memory, and the memory itself; streams last, because what is destroyed before
// may still have to wait for them.
bool Context::TearDown() {
  if (!alive.exchange(false)) return false;
  WaitFor(AllPoints());
  ResetRuntimeContext(handle());
  if (green != nullptr) {
    CloseAll();
    return true;  // the rest is its owner's
  }
  if (primary) {
    // Graphs belong to no context; what they hold of the device is released with the primary one.
    graph::ForgetAllExecs();
    graph::ForgetGraphMemory();
  }
  DestroyModulesOf(*this);
  DestroyEventsOf(*this);
  DestroyReferencesOf(*this);
  Views::Instance().DestroyAllOf(*this);
  DestroyArraysOf(*this);
  Memory::Instance().FreeAllOf(*this);
  heap.Forget();
  Registry<Stream>::Instance().TakeIf(
      [this](const Stream& stream) { return &stream.context == this; });
  CloseAll();
  return true;
}

void Context::CloseAll() {
  const MutexLock lock(streams_mutex_);
  for (const auto& stream : streams_) stream->Close();
  if (legacy_ != nullptr) legacy_->Close();
  streams_.clear();
  by_thread_.clear();
  legacy_ = nullptr;
  recording_ = nullptr;
  gates_.clear();
}

Context* MakePrimaryContext(Device& device) { return Add(device, true); }

Context* MakeContext(Device& device, unsigned flags) {
  Context* context = Add(device, false);
  context->Activate(flags);
  return context;
}

Context* MakeGreenContext(Device& device, const ResourceDescription* description) {
  Context* context = Add(device, false, std::make_unique<Green>(Green{description}));
  // The primary context's flags, read under its lock; released before Activate takes that of the
  // new one.
  MutexLock lock(device.primary->mutex);
  const unsigned flags = device.primary->flags;
  lock.Unlock();
  context->Activate(flags);
  return context;
}

// A linear search: programs have a handful of contexts, and a destroyed one must be distinguished from a live one.
Context* FindContext(CUcontext handle) {
  for (Context* context : AllContexts()) {
    if (context->handle() == handle) return context->alive.load() ? context : nullptr;
  }
  return nullptr;
}

std::vector<Context*> AllContexts() {
  Contexts& contexts = Everything();
  const MutexLock lock(contexts.mutex);
  std::vector<Context*> all;
  for (Context& context : contexts.all) all.push_back(&context);
  return all;
}

Context* CurrentContext() { return depth == 0 ? nullptr : stack[depth - 1]; }

CUresult PushContext(Context* context) {
  if (depth == kMaxContextDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult PopContext(Context*& context) {
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  context = stack[--depth];
  return CUDA_SUCCESS;
}

CUresult SetContext(Context* context) {
  // cuCtxSetCurrent(NULL) takes the top off the stack, as in CUDA; an empty one stays empty.
  if (context == nullptr) {
    if (depth > 0) --depth;
    return CUDA_SUCCESS;
  }
  if (depth == 0) return PushContext(context);
  stack[depth - 1] = context;
  return CUDA_SUCCESS;
}

CUresult RequireContext(Context*& context) {
  const CUresult result = RequireCurrentContext(context);
  if (result == CUDA_SUCCESS) context = &context->Owner();
  return result;
}

CUresult RequireCurrentContext(Context*& context) {
  CUDA_RETURN_IF_ERROR(Healthy());
  context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // INVALID_CONTEXT where there is none, CONTEXT_IS_DESTROYED where it has gone: programs tell them
  // apart.
  return context->alive.load() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void SynchronizeDevice(const Device& device) {
  for (Context* context : AllContexts()) {
    if (&context->device == &device) WaitFor(context->AllPoints());
  }
}

void WaitFor(const std::vector<Point>& points) {
  for (const Point& point : points) point.Wait();
}

}  // namespace gpuloom::softgpu
