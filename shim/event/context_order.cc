// SPDX-License-Identifier: Apache-2.0
#include "shim/event/context_order.h"

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/context/green_context.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// Our own streams and events for one context.
struct ContextOrder {
  CUcontext context;
  wire::StreamId recorder;  // events of the context are recorded here
  wire::StreamId gate;      // what the context waits for
  wire::StreamId
      barrier;  // a blocking stream: after the legacy stream's earlier work, and before its later work
  CUevent mark;    // recorded in one stream after the other, for the recorder to wait for
  CUevent opened;  // recorded after the gate
};

struct Orders {
  Lock lock;  // also held while one record or wait is sent
  Growing<ContextOrder> orders GPULOOM_GUARDED_BY(lock);
  std::atomic<size_t> count{0};  // so that programs without such calls take no lock
};
constinit Orders all;

ContextOrder* FindLocked(CUcontext context) GPULOOM_REQUIRES(all.lock) {
  for (ContextOrder& order : all.orders) {
    if (order.context == context) return &order;
  }
  return nullptr;
}

// Also for an order that was made only in part: what is missing has the legacy stream's id, or is
// null.
void End(const ContextOrder& order) {
  for (const wire::StreamId stream : {order.recorder, order.gate, order.barrier}) {
    if (stream != wire::kLegacyStream) EndOwnStream(stream);
  }
  for (CUevent event : {order.mark, order.opened}) {
    if (event != nullptr) (void)cuEventDestroy_v2(event);
  }
}

// Finds the context's streams and events, or makes them. Until the first such call a context has
// none, and costs nothing.
CUresult MakeLocked(CUcontext context, ContextOrder** made) GPULOOM_REQUIRES(all.lock) {
  *made = FindLocked(context);
  if (*made != nullptr) return CUDA_SUCCESS;
  ContextOrder order = {
      context, wire::kLegacyStream, wire::kLegacyStream, wire::kLegacyStream, nullptr, nullptr};
  CUresult result = MakeOwnStream(CU_STREAM_NON_BLOCKING, &order.recorder);
  if (result == CUDA_SUCCESS) result = MakeOwnStream(CU_STREAM_NON_BLOCKING, &order.gate);
  if (result == CUDA_SUCCESS) result = MakeOwnStream(CU_STREAM_DEFAULT, &order.barrier);
  if (result == CUDA_SUCCESS) result = MakeOwnEvent(&order.mark);
  if (result == CUDA_SUCCESS) result = MakeOwnEvent(&order.opened);
  if (result == CUDA_SUCCESS && !all.orders.Push(order)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    End(order);
    return result;
  }
  *made = &all.orders[all.orders.count() - 1];
  // Stored before the streams are listed, because a thread that makes a stream checks this
  // afterwards (see StreamsOf).
  all.count.store(all.orders.count());
  return CUDA_SUCCESS;
}

CUresult JudgeContext(CUcontext handle) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  const Context* context = handle == nullptr ? nullptr : FindContext(handle);
  return context == nullptr || !context->active.load(std::memory_order_acquire)
             ? CUDA_ERROR_INVALID_CONTEXT
             : CUDA_SUCCESS;
}

// Ends captures of the context's streams; returns the first error.
CUresult RefuseCaptures(CUcontext context) {
  if (!graph::AnyCapture()) return CUDA_SUCCESS;
  CUresult first = CUDA_SUCCESS;
  StreamsOf streams(context);
  for (wire::StreamId stream; streams.Next(&stream);) {
    const CUresult result = graph::RefuseInCapture(RefOf(stream));
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

CUresult Record(CUcontext context, CUevent event) {
  CUDA_RETURN_IF_ERROR(JudgeContext(context));
  const bool green = IsGreenContext(context);
  if (FindEvent(event) == nullptr ||
      ContextOf(ContextObjectKind::kEvent, reinterpret_cast<uint64_t>(event)) !=
          (green ? PrimaryContext() : context)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUDA_RETURN_IF_ERROR(RefuseCaptures(context));
  Holding holding(&all.lock);
  ContextOrder* order;
  CUresult result = MakeLocked(context, &order);
  // One event serves for all streams in turn: a wait is for the record that was the latest when it
  // was posted.
  const auto follow = [&](wire::StreamId stream) {
    const CUresult recorded = RecordEvent(order->mark, stream);
    return recorded != CUDA_SUCCESS ? recorded : MakeStreamWait(order->recorder, order->mark);
  };
  if (result == CUDA_SUCCESS && !green && !IsStreamIdle(wire::kLegacyStream)) {
    result = follow(order->barrier);
  }
  if (result == CUDA_SUCCESS) {
    StreamsOf streams(context);
    for (wire::StreamId stream; result == CUDA_SUCCESS && streams.Next(&stream);) {
      // What is idle has nothing to be waited for: two commands fewer per stream.
      if (!IsStreamIdle(stream)) result = follow(stream);
    }
  }
  return result != CUDA_SUCCESS ? result : RecordEvent(event, order->recorder);
}

// An event of a capture cannot be waited for by what is outside of it; trying ends the capture.
CUresult JudgeEvent(CUevent event) {
  if (FindEvent(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult captured = graph::CheckEventTime(event);
  if (captured != CUDA_ERROR_CAPTURED_EVENT) return captured;
  (void)graph::CheckEventUse(event);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Wait(CUcontext context, CUevent event) {
  CUDA_RETURN_IF_ERROR(JudgeContext(context));
  CUDA_RETURN_IF_ERROR(JudgeEvent(event));
  CUDA_RETURN_IF_ERROR(RefuseCaptures(context));
  Holding holding(&all.lock);
  ContextOrder* order;
  CUresult result = MakeLocked(context, &order);
  if (result == CUDA_SUCCESS) result = MakeStreamWait(order->gate, event);
  if (result == CUDA_SUCCESS) result = RecordEvent(order->opened, order->gate);
  if (result == CUDA_SUCCESS && !IsGreenContext(context)) {
    result = MakeStreamWait(order->barrier, order->opened);
  }
  if (result != CUDA_SUCCESS) return result;
  StreamsOf streams(context);
  for (wire::StreamId stream; result == CUDA_SUCCESS && streams.Next(&stream);) {
    result = MakeStreamWait(stream, order->opened);
  }
  return result;
}

}  // namespace

CUresult OrderNewStream(wire::StreamId stream, CUcontext context) {
  if (all.count.load() == 0) return CUDA_SUCCESS;
  Holding holding(&all.lock);
  for (const ContextOrder& order : all.orders) {
    // A green context waits for what the primary context waits for, but not vice versa.
    const bool its = context == nullptr
                         ? !IsGreenContext(order.context)
                         : order.context == context ||
                               (order.context == PrimaryContext() && IsGreenContext(context));
    if (!its) continue;
    CUDA_RETURN_IF_ERROR(MakeStreamWait(stream, order.opened));
  }
  return CUDA_SUCCESS;
}

void ForgetContextOrder(CUcontext context) {
  Holding holding(&all.lock);
  for (size_t i = 0; i < all.orders.count(); ++i) {
    if (all.orders[i].context != context) continue;
    End(all.orders[i]);
    all.orders.Remove(i);
    break;
  }
  all.count.store(all.orders.count());
}

void ForgetAllContextOrders() {
  Holding holding(&all.lock);
  all.orders.Clear();
  all.count.store(0);
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) { return Record(context, event); }
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) { return Wait(context, event); }

}  // extern "C"
