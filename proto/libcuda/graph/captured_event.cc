// SPDX-License-Identifier: Apache-2.0
// Events in captures: a record marks a place in the graph, and a wait makes another stream take part.
#include <functional>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/capture_state.h"

namespace gpuloom::graph {

using namespace capturing;  // what this file works on

namespace {

// The place of the first event that is not below this one.
size_t LowerBound(CUevent event) {
  size_t first = 0, last = state.events.count();
  while (first != last) {
    const size_t middle = first + (last - first) / 2;
    if (std::less<>()(state.events[middle].event, event)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// The number of events if it is none of them.
size_t FindEventIndex(CUevent event) {
  const size_t at = LowerBound(event);
  return at != state.events.count() && state.events[at].event == event ? at : state.events.count();
}

}  // namespace

void capturing::RemoveEvent(size_t index) {
  state.events[index].dependencies.Free();
  state.events.Remove(index);
  captured_event_count.fetch_sub(1, std::memory_order_acq_rel);
}

bool CapturesRecord(const StreamRef& stream, CUevent event, unsigned flags, CUresult* result) {
  // Two loads are all that a program without captures pays. An external record is a node of its own
  // and needs a capture in any case.
  const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
  if (!external && !AnyCapture() && !AnyCapturedEvent()) return false;
  GraphLock lock;
  CapturedStream* captured;
  Capture* capture;
  if (!Enter(stream, &captured, &capture, result)) {
    if (external) {
      *result = CUDA_ERROR_ILLEGAL_STATE;
      return true;
    }
    // Its last record is an ordinary one from here on.
    const size_t index = FindEventIndex(event);
    if (index != state.events.count()) RemoveEvent(index);
    return false;
  }
  if (*result != CUDA_SUCCESS) return true;
  if (external) {
    NodeParams params = EventOperation(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return Record(captured, capture, &params, result);
  }
  // No node: the event only notes what its waiters will depend on. A later record takes the place
  // of an earlier one, even of another capture's.
  const size_t index = LowerBound(event);
  if (index == state.events.count() || state.events[index].event != event) {
    if (!state.events.Insert(index, {event, capture, {}})) {
      *result = CUDA_ERROR_OUT_OF_MEMORY;
      return true;
    }
    captured_event_count.fetch_add(1, std::memory_order_acq_rel);
  }
  CapturedEvent& recorded = state.events[index];
  recorded.capture = capture;
  if (!SameEdges(captured->dependencies.begin(), captured->dependencies.count(),
                 &recorded.dependencies)) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return true;
}

// Three kinds of wait: in a stream that does not capture, for a captured event (it joins the
// event's capture); in a capturing stream, for an event of the same capture (it adds dependencies);
// any other is an error that breaks what it touches.
bool CapturesWait(const StreamRef& stream, CUevent event, unsigned flags, CUresult* result) {
  const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (!external && !AnyCapture() && !AnyCapturedEvent()) return false;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  const bool known = index != state.events.count();
  CapturedStream* captured;
  Capture* capture = nullptr;
  if (!Enter(stream, &captured, &capture, result)) {
    if (external) {
      *result = CUDA_ERROR_ILLEGAL_STATE;
      return true;
    }
    if (!known) return false;
    Capture* other = state.events[index].capture;
    if (other == nullptr) {
      *result = CUDA_ERROR_INVALID_VALUE;  // of a capture that has ended
      return true;
    }
    if (other->invalid) {
      *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      return true;
    }
    if (stream.legacy) {
      // The legacy stream cannot take part in a capture.
      other->invalid = true;
      *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      return true;
    }
    // This is how a capture forks to another stream.
    CapturedStream* joined = Join(other, stream);
    if (joined == nullptr || !Unite(state.events[index].dependencies, &joined->dependencies)) {
      other->invalid = true;
      *result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return true;
  }
  if (*result != CUDA_SUCCESS) return true;
  if (external) {
    NodeParams params = EventOperation(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return Record(captured, capture, &params, result);
  }
  if (!known && !WasRecorded(event)) return true;  // nothing to wait for
  // It was recorded outside of captures, or in one that has ended: a graph cannot depend on it.
  if (!known || state.events[index].capture == nullptr) {
    capture->invalid = true;
    *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return true;
  }
  if (state.events[index].capture != capture) {
    capture->invalid = true;
    state.events[index].capture->invalid = true;
    *result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    return true;
  }
  if (!Unite(state.events[index].dependencies, &captured->dependencies)) {
    capture->invalid = true;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return true;
}

CUresult CheckEventUse(CUevent event) {
  if (!AnyCapture() && !AnyCapturedEvent()) return CUDA_SUCCESS;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index == state.events.count()) return CheckUnsafeLocked();
  if (state.events[index].capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Whatever the thread's mode is.
  state.events[index].capture->invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult CheckEventTime(CUevent event) {
  if (!AnyCapturedEvent()) return CUDA_SUCCESS;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index == state.events.count()) return CUDA_SUCCESS;
  return state.events[index].capture == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                : CUDA_ERROR_CAPTURED_EVENT;
}

void ForgetEvent(CUevent event) {
  if (!AnyCapturedEvent()) return;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index != state.events.count()) RemoveEvent(index);
}

}  // namespace gpuloom::graph
