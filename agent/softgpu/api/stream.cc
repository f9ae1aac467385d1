// SPDX-License-Identifier: Apache-2.0
// cuStream*: streams, waiting for them, host functions in them.
#include <algorithm>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// A healthy driver, a current context and a living stream.
CUresult Require(CUstream handle, DefaultStream null_means, std::shared_ptr<Stream>& stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  stream = FindStream(*context, handle, null_means);
  return stream != nullptr ? CUDA_SUCCESS : NoStream(handle);
}

// Runs `get` on the stream when there is one and the place for the answer is not NULL.
template <typename T, typename Get>
CUresult Answer(CUstream handle, DefaultStream null_means, T* answer, const Get& get) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *answer = get(*stream);
  return CUDA_SUCCESS;
}

// In the current context, which may be a green one: its streams are what it is for. Priorities
// beyond the range are cut, as CUDA does.
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

}  // namespace

CUresult api::cuStreamSynchronize(CUstream handle, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  CUDA_RETURN_IF_ERROR(RefuseToWait(*stream));
  // For the legacy stream, also everything that it waits for.
  WaitFor(stream->context.PointsOf(*stream));
  return Fault();
}

CUresult api::cuStreamQuery(CUstream handle, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  CUDA_RETURN_IF_ERROR(RefuseToWait(*stream));
  for (const Point& point : stream->context.PointsOf(*stream)) {
    if (!point.Done()) return CUDA_ERROR_NOT_READY;
  }
  return Fault();
}

CUresult api::cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags,
                                DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
  const auto event = Registry<Event>::Instance().Find(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult captured = CUDA_SUCCESS;
  if (graph::CapturesWait(RefOf(*stream), event_handle, flags, &captured)) return captured;
  const auto recording = event->Latest();
  // If it was never recorded, or is done already, no work has to be queued.
  if (recording == nullptr || recording->point.Done()) return CUDA_SUCCESS;
  Work work;
  // Work without a function: its point is done when the event's is.
  work.after.push_back(recording->point);
  stream->context.Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult api::cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data,
                               DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
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

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                                  unsigned flags, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(Require(handle, null_means, stream));
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

CUresult api::cuStreamGetPriority(CUstream stream, int* priority, DefaultStream null_means) {
  return Answer(stream, null_means, priority, [](Stream& found) { return found.priority; });
}

CUresult api::cuStreamGetFlags(CUstream stream, unsigned* flags, DefaultStream null_means) {
  return Answer(stream, null_means, flags, [](Stream& found) { return found.flags; });
}

CUresult api::cuStreamGetId(CUstream handle, unsigned long long* id, DefaultStream null_means) {
  return Answer(handle, null_means, id, [](Stream& stream) { return stream.id; });
}

CUresult api::cuStreamGetDevice(CUstream stream, CUdevice* device, DefaultStream null_means) {
  return Answer(stream, null_means, device,
                [](Stream& found) { return found.context.device.ordinal; });
}

CUresult api::cuStreamGetCtx(CUstream handle, CUcontext* context, DefaultStream null_means) {
  return Answer(handle, null_means, context,
                [](Stream& stream) { return stream.context.handle(); });
}

// Each of the outputs may be null.
CUresult api::cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green,
                                DefaultStream null_means) {
  CUcontext owner = nullptr;
  return Answer(handle, null_means, context == nullptr ? &owner : context, [&](Stream& stream) {
    Green* of = stream.context.green.get();
    if (green != nullptr) *green = of == nullptr ? nullptr : of->handle();
    return stream.context.Owner().handle();
  });
}

extern "C" {

CUresult cuStreamCreate(CUstream* created, unsigned flags) { return Create(created, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* created, unsigned flags, int priority) {
  return Create(created, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  // A green context's streams keep their handles when it goes (NoStream).
  if (const auto found = Registry<Stream>::Instance().Find(handle);
      found != nullptr && !found->context.alive) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  const std::shared_ptr<Stream> stream = Registry<Stream>::Instance().Take(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A capture that is in progress in it ends without a graph.
  graph::ForgetStream(RefOf(*stream));
  // The work in it still runs.
  stream->context.CloseStream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

}  // extern "C"
