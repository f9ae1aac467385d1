// SPDX-License-Identifier: Apache-2.0
// cuStream*: streams, waiting for them, host functions in them. Each call comes as a pair: the
// plain name takes NULL for the legacy default stream, the _ptsz name takes it for the thread's
// own.
#include <algorithm>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

namespace graph = gpuloom::graph;
using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

constexpr bool kLegacy = false;
constexpr bool kPerThread = true;

// A healthy driver, a current context and a living stream.
CUresult Require(CUstream handle, bool per_thread, std::shared_ptr<Stream>& stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  stream = FindStream(*context, handle, per_thread);
  return stream != nullptr ? CUDA_SUCCESS : NoStream(handle);
}

// Runs `get` on the stream when there is one and the place for the answer is not NULL.
template <typename T, typename Get>
CUresult Answer(CUstream handle, bool per_thread, T* answer, const Get& get) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *answer = get(*stream);
  return CUDA_SUCCESS;
}

CUresult Create(CUstream* created, unsigned flags, int priority) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireCurrentContext(context));
  if (created == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  std::shared_ptr<Stream> stream = context->MakeStream(flags, priority);
  *created = reinterpret_cast<CUstream>(stream.get());
  Registry<Stream>::Instance().Add(std::move(stream));
  return CUDA_SUCCESS;
}

CUresult Synchronize(CUstream handle, bool per_thread) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  CUDA_RETURN_IF_ERROR(RefuseToWait(*stream));
  WaitFor(stream->context.PointsOf(*stream));
  return Fault();
}

CUresult Query(CUstream handle, bool per_thread) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  CUDA_RETURN_IF_ERROR(RefuseToWait(*stream));
  for (const Point& point : stream->context.PointsOf(*stream)) {
    if (!point.Done()) return CUDA_ERROR_NOT_READY;
  }
  return Fault();
}

CUresult WaitEvent(CUstream handle, bool per_thread, CUevent event_handle, unsigned flags) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  const auto event = Registry<Event>::Instance().Find(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult captured = CUDA_SUCCESS;
  if (graph::CapturesWait(RefOf(*stream), event_handle, flags, &captured)) return captured;
  const auto recording = event->Latest();
  if (recording == nullptr || recording->point.Done()) return CUDA_SUCCESS;
  Work work;
  work.after.push_back(recording->point);
  stream->context.Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult LaunchHostFunction(CUstream handle, bool per_thread, CUhostFn function, void* data) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult captured = CUDA_SUCCESS;
  if (Records(*stream, &captured, [&](graph::NodeParams* node) {
        *node = graph::HostCall(function, data);
        return CUDA_SUCCESS;
      })) {
    return captured;
  }
  Work work;
  work.run = [function, data] {
    const InsideHostFunction inside;
    function(data);
  };
  stream->context.Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult AddCallback(CUstream handle, bool per_thread, CUstreamCallback callback, void* data,
                     unsigned flags) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, per_thread, stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(RefuseInCapture(*stream));
  Work work;
  work.even_after_fault = true;  // a callback is told of the error, unlike a host function
  work.run = [callback, data, handle] {
    const InsideHostFunction inside;
    callback(handle, Fault(), data);
  };
  stream->context.Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult GetContext(CUstream handle, bool per_thread, CUcontext* context) {
  return Answer(handle, per_thread, context,
                [](Stream& stream) { return stream.context.handle(); });
}

// Each of the outputs may be null.
CUresult GetContexts(CUstream handle, bool per_thread, CUcontext* context, CUgreenCtx* green) {
  CUcontext owner = nullptr;
  return Answer(handle, per_thread, context == nullptr ? &owner : context, [&](Stream& stream) {
    Green* of = stream.context.green.get();
    if (green != nullptr) *green = of == nullptr ? nullptr : of->handle();
    return stream.context.Owner().handle();
  });
}

CUresult GetId(CUstream handle, bool per_thread, unsigned long long* id) {
  return Answer(handle, per_thread, id, [](Stream& stream) { return stream.id; });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* created, unsigned flags) { return Create(created, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* created, unsigned flags, int priority) {
  return Create(created, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (const auto found = Registry<Stream>::Instance().Find(handle);
      found != nullptr && !found->context.alive) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  const std::shared_ptr<Stream> stream = Registry<Stream>::Instance().Take(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  graph::ForgetStream(RefOf(*stream));
  stream->context.CloseStream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

CUresult cuStreamSynchronize(CUstream stream) { return Synchronize(stream, kLegacy); }
CUresult cuStreamSynchronize_ptsz(CUstream stream) { return Synchronize(stream, kPerThread); }
CUresult cuStreamQuery(CUstream stream) { return Query(stream, kLegacy); }
CUresult cuStreamQuery_ptsz(CUstream stream) { return Query(stream, kPerThread); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return WaitEvent(stream, kLegacy, event, flags);
}
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return WaitEvent(stream, kPerThread, event, flags);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return LaunchHostFunction(stream, kLegacy, function, data);
}
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
  return LaunchHostFunction(stream, kPerThread, function, data);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                             unsigned flags) {
  return AddCallback(stream, kLegacy, callback, data, flags);
}
CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void* data,
                                  unsigned flags) {
  return AddCallback(stream, kPerThread, callback, data, flags);
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return Answer(stream, kLegacy, priority, [](Stream& found) { return found.priority; });
}
CUresult cuStreamGetPriority_ptsz(CUstream stream, int* priority) {
  return Answer(stream, kPerThread, priority, [](Stream& found) { return found.priority; });
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return Answer(stream, kLegacy, flags, [](Stream& found) { return found.flags; });
}
CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned* flags) {
  return Answer(stream, kPerThread, flags, [](Stream& found) { return found.flags; });
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return GetId(stream, kLegacy, id);
}
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
  return GetId(stream, kPerThread, id);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return Answer(stream, kLegacy, device,
                [](Stream& found) { return found.context.device.ordinal; });
}
CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice* device) {
  return Answer(stream, kPerThread, device,
                [](Stream& found) { return found.context.device.ordinal; });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return GetContext(stream, kLegacy, context);
}
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
  return GetContext(stream, kPerThread, context);
}
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return GetContexts(stream, kLegacy, context, green);
}
CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return GetContexts(stream, kPerThread, context, green);
}

}  // extern "C"
