// SPDX-License-Identifier: Apache-2.0
// cuEvent*: recording, waiting, elapsed time.
#include "agent/softgpu/driver/event.h"

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// Needs a driver without fault, but no current context.
CUresult Require(CUevent handle, std::shared_ptr<Event>& event) {
  CUDA_RETURN_IF_ERROR(Healthy());
  event = Registry<Event>::Instance().Find(handle);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// Captures of the context's streams end; the first error is returned.
CUresult RefuseCaptures(Context& context) {
  CUresult first = CUDA_SUCCESS;
  for (Context* part : WithGreenContexts(context)) {
    for (const auto& stream : part->Streams()) {
      const CUresult result = RefuseInCapture(*stream);
      if (first == CUDA_SUCCESS) first = result;
    }
  }
  return first;
}

// Any living context, current or not.
CUresult RequireContextOf(CUcontext handle, Context*& context) {
  CUDA_RETURN_IF_ERROR(Healthy());
  context = FindContext(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuEventRecord(CUevent event, CUstream stream, DefaultStream null_means) {
  return cuEventRecordWithFlags(event, stream, 0, null_means);
}

CUresult api::cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags,
                                     DefaultStream null_means) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  std::shared_ptr<Event> event;
  CUDA_RETURN_IF_ERROR(Require(handle, event));
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto stream = FindStream(*context, stream_handle, null_means);
  if (stream == nullptr) return NoStream(stream_handle);
  // An event belongs to the context that it was made in; a green context's streams count as its
  // owner's.
  if (&stream->context.Owner() != &event->context) return CUDA_ERROR_INVALID_HANDLE;
  CUresult captured = CUDA_SUCCESS;
  if (graph::CapturesRecord(RefOf(*stream), handle, flags, &captured)) return captured;
  event->Record(*stream);
  return CUDA_SUCCESS;
}

extern "C" {

CUresult cuCtxRecordEvent(CUcontext context_handle, CUevent handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContextOf(context_handle, context));
  std::shared_ptr<Event> event;
  CUDA_RETURN_IF_ERROR(Require(handle, event));
  if (&event->context != &context->Owner()) return CUDA_ERROR_INVALID_HANDLE;
  // An event of the whole context would have to stand behind captured work, which never runs.
  CUDA_RETURN_IF_ERROR(RefuseCaptures(*context));
  const auto stream = context->RecordingStream();
  // A recording that a capture had made in the event is forgotten.
  CUresult captured = CUDA_SUCCESS;
  if (graph::CapturesRecord(RefOf(*stream), handle, 0, &captured)) return captured;
  // A point behind everything in all streams: each one's tail, waited for by a stream that nobody
  // else uses.
  std::vector<Point> all;
  for (Context* part : WithGreenContexts(*context)) {
    for (Point& point : part->AllPoints()) all.push_back(std::move(point));
  }
  event->Record(*stream, std::move(all));
  return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext context_handle, CUevent handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContextOf(context_handle, context));
  std::shared_ptr<Event> event;
  CUDA_RETURN_IF_ERROR(Require(handle, event));
  // An event that belongs to a capture has no time outside of it; CheckEventUse invalidates that
  // capture.
  const CUresult captured = graph::CheckEventTime(handle);
  if (captured == CUDA_ERROR_CAPTURED_EVENT) {
    static_cast<void>(graph::CheckEventUse(handle));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  CUDA_RETURN_IF_ERROR(captured);
  CUDA_RETURN_IF_ERROR(RefuseCaptures(*context));
  const auto recording = event->Latest();
  // If it was never recorded, or is done already, there is nothing to wait for.
  if (recording == nullptr || recording->point.Done()) return CUDA_SUCCESS;
  for (Context* part : WithGreenContexts(*context)) part->WaitBefore(recording->point);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* created, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (created == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Interprocess events must not be timed, in CUDA; where they are not, they are not offered here.
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    return (flags & CU_EVENT_DISABLE_TIMING) == 0 ? CUDA_ERROR_INVALID_VALUE
                                                  : CUDA_ERROR_NOT_SUPPORTED;
  }
  context->NeedEvents(Registry<Event>::Instance().Size() + 1);
  auto event = std::make_shared<Event>(*context, flags);
  *created = reinterpret_cast<CUevent>(event.get());
  Registry<Event>::Instance().Add(std::move(event));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  // Whoever waits for it keeps its recording, so destroying it disturbs nobody.
  if (Registry<Event>::Instance().Take(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  graph::ForgetEvent(handle);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CUresult cuEventQuery(CUevent handle) {
  std::shared_ptr<Event> event;
  CUDA_RETURN_IF_ERROR(Require(handle, event));
  CUDA_RETURN_IF_ERROR(graph::CheckEventUse(handle));
  // A recording made by then: recording again meanwhile does not make this call wait longer.
  const auto recording = event->Latest();
  if (recording != nullptr && !recording->point.Done()) return CUDA_ERROR_NOT_READY;
  return Fault();
}

CUresult cuEventSynchronize(CUevent handle) {
  std::shared_ptr<Event> event;
  CUDA_RETURN_IF_ERROR(Require(handle, event));
  CUDA_RETURN_IF_ERROR(graph::CheckEventUse(handle));
  const auto recording = event->Latest();
  if (recording != nullptr) recording->point.Wait();
  return Fault();
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  std::shared_ptr<Event> start;
  std::shared_ptr<Event> end;
  CUDA_RETURN_IF_ERROR(Require(start_handle, start));
  CUDA_RETURN_IF_ERROR(Require(end_handle, end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  CUDA_RETURN_IF_ERROR(graph::CheckEventTime(start_handle));
  CUDA_RETURN_IF_ERROR(graph::CheckEventTime(end_handle));
  const auto from = start->Latest();
  const auto to = end->Latest();
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Both times are set once their points are done, not before.
  if (!from->point.Done() || !to->point.Done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) / 1e6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

}  // extern "C"
