// SPDX-License-Identifier: Apache-2.0
// Stream capture: what may not be captured, what may not be done meanwhile, and what that breaks.
#include <cstring>
#include <thread>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr struct {
  CUstreamCaptureMode mode;
  const char* name;
} kModes[] = {{CU_STREAM_CAPTURE_MODE_GLOBAL, "global"},
              {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local"},
              {CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed"}};

// What the cases use while they capture; made before, so that making it is no part of them.
struct Scene {
  CUdeviceptr a = 0, b = 0;
  CUmodule module = nullptr;
  CUfunction increment = nullptr;
  CUstream stream = nullptr, second = nullptr;
  CUevent fresh = nullptr;     // never recorded
  CUevent recorded = nullptr;  // before every capture
  char host[64] = {};

  bool Make(Calls& c) {
    const Driver& cu = Cu();
    return c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&a, 4096)) &&
           c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&b, 4096)) &&
           c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels)) &&
           c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&increment, module, "increment")) &&
           Renew(c);
  }
  // New streams and events: what an earlier case left in them does not matter.
  bool Renew(Calls& c) {
    const Driver& cu = Cu();
    return c.Has("cuStreamCreate", cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) &&
           c.Has("cuStreamCreate", cu.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING)) &&
           c.Has("cuEventCreate", cu.cuEventCreate(&fresh, 0)) &&
           c.Has("cuEventCreate", cu.cuEventCreate(&recorded, 0)) &&
           c.Has("cuEventRecord", cu.cuEventRecord(recorded, nullptr)) &&
           c.Has("cuCtxSynchronize", cu.cuCtxSynchronize());
  }
  CUresult Increment(CUstream on) {
    void* values[] = {&a};
    return Cu().cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, on, values, nullptr);
  }
};

// Two cases: the call inside a capture, and how the capture then ends.
template <typename Call>
bool InCapture(Calls& c, Scene& scene, CUstreamCaptureMode mode, const std::string& what,
               Call call) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr;
  if (!c.Has("cuStreamBeginCapture", cu.cuStreamBeginCapture_v2(scene.stream, mode))) return false;
  c(what, call);
  c(what + ", end", [&] { return cu.cuStreamEndCapture(scene.stream, &graph); });
  // Where only one of the two was asked for, the capture ends here.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  (void)cu.cuStreamIsCapturing(scene.stream, &status);
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) (void)cu.cuStreamEndCapture(scene.stream, &graph);
  if (graph != nullptr) (void)cu.cuGraphDestroy(graph);
  return scene.Renew(c);
}

template <typename Call>
CUresult OnAnotherThread(const Place& at, Call call) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    (void)Cu().cuCtxSetCurrent(at.context);
    result = call();
  }).join();
  return result;
}

}  // namespace

void WrongCaptures(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  Scene s;
  if (!s.Make(c)) return;
  const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
  c("cuStreamBeginCapture on the default stream",
    [&] { return cu.cuStreamBeginCapture_v2(nullptr, global); });
  c("cuStreamBeginCapture on the legacy stream",
    [&] { return cu.cuStreamBeginCapture_v2(CU_STREAM_LEGACY, global); });
  c("cuStreamBeginCapture in an unknown mode",
    [&] { return cu.cuStreamBeginCapture_v2(s.stream, static_cast<CUstreamCaptureMode>(99)); });
  c("cuStreamEndCapture without a begin", [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
  c("cuStreamEndCapture on the default stream",
    [&] { return cu.cuStreamEndCapture(nullptr, &graph); });
  c("cuStreamEndCapture without output", [&] { return cu.cuStreamEndCapture(s.stream, nullptr); });
  c("cuStreamGetCaptureInfo without output", [&] {
    return cu.cuStreamGetCaptureInfo_v3(s.stream, nullptr, &id, &graph, nullptr, nullptr, nullptr);
  });
  c("cuStreamUpdateCaptureDependencies without a capture",
    [&] { return cu.cuStreamUpdateCaptureDependencies_v2(s.stream, nullptr, nullptr, 0, 0); });
  c("cuStreamBeginCaptureToGraph of no graph",
    [&] { return cu.cuStreamBeginCaptureToGraph(s.stream, nullptr, nullptr, nullptr, 0, global); });
  if (!InCapture(c, s, global, "cuStreamBeginCapture a second time",
                 [&] { return cu.cuStreamBeginCapture_v2(s.stream, global); }))
    return;
  if (!InCapture(c, s, global, "cuStreamEndCapture on another stream",
                 [&] { return cu.cuStreamEndCapture(s.second, &graph); }))
    return;
  if (!InCapture(c, s, global, "cuStreamEndCapture on another thread", [&] {
        return OnAnotherThread(at, [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
      }))
    return;
  if (!InCapture(c, s, CU_STREAM_CAPTURE_MODE_RELAXED,
                 "cuStreamEndCapture of a relaxed one on another thread", [&] {
                   return OnAnotherThread(at,
                                          [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
                 }))
    return;
  if (!InCapture(c, s, global, "cuStreamEndCapture without output, in capture",
                 [&] { return cu.cuStreamEndCapture(s.stream, nullptr); }))
    return;
  if (!InCapture(c, s, global, "cuStreamIsCapturing of the legacy stream",
                 [&] { return cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &status); }))
    return;
  if (!InCapture(c, s, global, "cuStreamGetCaptureInfo of the legacy stream", [&] {
        return cu.cuStreamGetCaptureInfo_v3(CU_STREAM_LEGACY, &status, &id, &graph, nullptr,
                                            nullptr, nullptr);
      }))
    return;
  if (!InCapture(c, s, global, "cuStreamUpdateCaptureDependencies with unknown flags", [&] {
        return cu.cuStreamUpdateCaptureDependencies_v2(s.stream, nullptr, nullptr, 0, 0x80);
      }))
    return;
  if (!InCapture(c, s, global, "cuStreamUpdateCaptureDependencies without its list", [&] {
        return cu.cuStreamUpdateCaptureDependencies_v2(s.stream, nullptr, nullptr, 1,
                                                       CU_STREAM_SET_CAPTURE_DEPENDENCIES);
      }))
    return;
  (void)InCapture(c, s, global, "cuGraphLaunch of none in capture",
                  [&] { return cu.cuGraphLaunch(nullptr, s.stream); });
}

void WrongInCapture(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  Scene s;
  if (!s.Make(c)) return;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUstream made = nullptr;
  CUevent event = nullptr;
  CUstreamCaptureStatus status;
  void* host = nullptr;
  size_t size_bytes = 0, total_bytes = 0;
  float ms = 0;
  for (const auto& each : kModes) {
    bool goes_on = true;
    const auto in = [&](const char* what, auto call) {
      if (goes_on) goes_on = InCapture(c, s, each.mode, std::string(each.name) + ": " + what, call);
    };
    in("cuStreamSynchronize of it", [&] { return cu.cuStreamSynchronize(s.stream); });
    in("cuStreamSynchronize of another", [&] { return cu.cuStreamSynchronize(s.second); });
    in("cuStreamSynchronize of the legacy stream", [&] { return cu.cuStreamSynchronize(nullptr); });
    in("cuStreamQuery of it", [&] { return cu.cuStreamQuery(s.stream); });
    in("cuStreamQuery of another", [&] { return cu.cuStreamQuery(s.second); });
    in("cuCtxSynchronize", [&] { return cu.cuCtxSynchronize(); });
    in("cuEventQuery of one from before", [&] { return cu.cuEventQuery(s.recorded); });
    in("cuEventSynchronize of one from before", [&] { return cu.cuEventSynchronize(s.recorded); });
    in("cuEventQuery of one that was captured", [&] {
      (void)cu.cuEventRecord(s.fresh, s.stream);
      return cu.cuEventQuery(s.fresh);
    });
    in("cuEventSynchronize of one that was captured", [&] {
      (void)cu.cuEventRecord(s.fresh, s.stream);
      return cu.cuEventSynchronize(s.fresh);
    });
    in("cuEventElapsedTime to one that was captured", [&] {
      (void)cu.cuEventRecord(s.fresh, s.stream);
      return cu.cuEventElapsedTime_v2(&ms, s.recorded, s.fresh);
    });
    in("cuMemAlloc", [&] { return cu.cuMemAlloc_v2(&memory, 4096); });
    in("cuMemFree", [&] {
      memory = 0;
      CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
      (void)cu.cuThreadExchangeStreamCaptureMode(&relaxed);
      (void)cu.cuMemAlloc_v2(&memory, 4096);
      (void)cu.cuThreadExchangeStreamCaptureMode(&relaxed);
      return cu.cuMemFree_v2(memory);
    });
    in("cuMemHostAlloc", [&] { return cu.cuMemHostAlloc(&host, 4096, 0); });
    in("cuMemGetInfo", [&] { return cu.cuMemGetInfo_v2(&size_bytes, &total_bytes); });
    in("cuModuleLoadData", [&] { return cu.cuModuleLoadData(&module, kKernels); });
    in("cuMemcpyHtoD", [&] { return cu.cuMemcpyHtoD_v2(s.a, s.host, 16); });
    in("cuMemcpyDtoH", [&] { return cu.cuMemcpyDtoH_v2(s.host, s.a, 16); });
    in("cuMemcpyDtoD", [&] { return cu.cuMemcpyDtoD_v2(s.a, s.b, 16); });
    in("cuMemsetD8", [&] { return cu.cuMemsetD8_v2(s.a, 1, 16); });
    in("cuMemsetD8Async on the legacy stream",
       [&] { return cu.cuMemsetD8Async(s.a, 1, 16, nullptr); });
    in("cuLaunchKernel on the legacy stream", [&] { return s.Increment(nullptr); });
    in("cuLaunchKernel on another stream", [&] { return s.Increment(s.second); });
    in("cuEventRecord on the legacy stream", [&] { return cu.cuEventRecord(s.fresh, nullptr); });
    in("cuStreamWaitEvent of the legacy stream",
       [&] { return cu.cuStreamWaitEvent(nullptr, s.recorded, 0); });
    in("cuMemcpyHtoDAsync of pageable memory",
       [&] { return cu.cuMemcpyHtoDAsync_v2(s.a, s.host, 16, s.stream); });
    in("cuMemcpyDtoHAsync of pageable memory",
       [&] { return cu.cuMemcpyDtoHAsync_v2(s.host, s.a, 16, s.stream); });
    in("cuMemcpyDtoDAsync from nowhere",
       [&] { return cu.cuMemcpyDtoDAsync_v2(s.a, 0x1234'5678'9000, 16, s.stream); });
    in("cuStreamAddCallback", [&] {
      return cu.cuStreamAddCallback(
          s.stream, [](CUstream, CUresult, void*) {}, nullptr, 0);
    });
    in("cuStreamWaitEvent of one from before",
       [&] { return cu.cuStreamWaitEvent(s.stream, s.recorded, 0); });
    in("cuStreamWaitEvent of one that was never recorded",
       [&] { return cu.cuStreamWaitEvent(s.stream, s.fresh, 0); });
    in("cuStreamCreate", [&] { return cu.cuStreamCreate(&made, 0); });
    in("cuEventCreate", [&] { return cu.cuEventCreate(&event, 0); });
    in("cuLaunchKernel of a grid of width 0", [&] {
      return cu.cuLaunchKernel(s.increment, 0, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr);
    });
    in("cuCtxRecordEvent", [&] { return cu.cuCtxRecordEvent(at.context, s.fresh); });
    in("cuCtxWaitEvent", [&] { return cu.cuCtxWaitEvent(at.context, s.recorded); });
    in("cuCtxWaitEvent of one that was captured", [&] {
      (void)cu.cuEventRecord(s.fresh, s.stream);
      return cu.cuCtxWaitEvent(at.context, s.fresh);
    });
    in("cuStreamIsCapturing of another", [&] { return cu.cuStreamIsCapturing(s.second, &status); });
    in("cuMemAlloc on another thread",
       [&] { return OnAnotherThread(at, [&] { return cu.cuMemAlloc_v2(&memory, 4096); }); });
    in("cuCtxSynchronize on another thread",
       [&] { return OnAnotherThread(at, [&] { return cu.cuCtxSynchronize(); }); });
    in("cuStreamSynchronize of another on another thread",
       [&] { return OnAnotherThread(at, [&] { return cu.cuStreamSynchronize(s.second); }); });
    in("cuMemAlloc on another thread that is relaxed", [&] {
      return OnAnotherThread(at, [&] {
        CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
        (void)cu.cuThreadExchangeStreamCaptureMode(&relaxed);
        return cu.cuMemAlloc_v2(&memory, 4096);
      });
    });
    if (!goes_on) return;
  }
}

void WrongCaptureJoins(Calls& c, const Place&) {
  const Driver& cu = Cu();
  Scene s;
  CUgraph graph = nullptr, other_graph = nullptr;
  CUevent forked = nullptr, other = nullptr;
  if (!s.Make(c)) return;
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING))) return;
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&other, CU_EVENT_DISABLE_TIMING))) return;
  const auto mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  const auto fork = [&] {
    (void)cu.cuEventRecord(forked, s.stream);
    return cu.cuStreamWaitEvent(s.second, forked, 0);
  };
  // After each: both streams new, whatever became of the capture.
  const auto scene = [&](auto body) {
    if (!c.Has("cuStreamBeginCapture", cu.cuStreamBeginCapture_v2(s.stream, mode))) return false;
    body();
    CUgraph rest = nullptr;
    (void)cu.cuStreamEndCapture(s.second, &rest);
    (void)cu.cuStreamEndCapture(s.stream, &rest);
    return s.Renew(c);
  };
  bool goes_on = scene([&] {
    c("fork", fork);
    c("fork, work in the branch", [&] { return s.Increment(s.second); });
    c("fork, end before the join", [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
    c("fork, the branch after that end", [&] { return s.Increment(s.second); });
  });
  goes_on = goes_on && scene([&] {
              (void)fork();
              c("fork, end of the branch", [&] { return cu.cuStreamEndCapture(s.second, &graph); });
              c("fork, end of the origin after that",
                [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
            });
  goes_on = goes_on && scene([&] {
              (void)fork();
              c("fork, synchronize the branch", [&] { return cu.cuStreamSynchronize(s.second); });
              c("fork, the origin after that", [&] { return s.Increment(s.stream); });
              c("fork, end after that", [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
            });
  goes_on =
      goes_on && scene([&] {
        (void)fork();
        c("fork, begin on the branch", [&] { return cu.cuStreamBeginCapture_v2(s.second, mode); });
        c("fork, destroy the branch", [&] { return cu.cuStreamDestroy_v2(s.second); });
        (void)cu.cuStreamCreate(&s.second, CU_STREAM_NON_BLOCKING);
        c("fork, end after the branch was destroyed",
          [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
      });
  goes_on = goes_on && scene([&] {
              c("two captures, the second begin",
                [&] { return cu.cuStreamBeginCapture_v2(s.second, mode); });
              (void)cu.cuEventRecord(other, s.second);
              c("two captures, one waits for the other",
                [&] { return cu.cuStreamWaitEvent(s.stream, other, 0); });
              c("two captures, end of the second",
                [&] { return cu.cuStreamEndCapture(s.second, &other_graph); });
              c("two captures, end of the first",
                [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
            });
  goes_on =
      goes_on && scene([&] {
        (void)cu.cuEventRecord(forked, s.stream);
        (void)cu.cuStreamEndCapture(s.stream, &graph);
        c("a captured event after the capture, query", [&] { return cu.cuEventQuery(forked); });
        c("a captured event after the capture, synchronize",
          [&] { return cu.cuEventSynchronize(forked); });
        c("a captured event after the capture, wait",
          [&] { return cu.cuStreamWaitEvent(s.second, forked, 0); });
        c("a captured event after the capture, record again",
          [&] { return cu.cuEventRecord(forked, s.second); });
      });
  goes_on = goes_on && scene([&] {
              c("destroy the captured stream", [&] { return cu.cuStreamDestroy_v2(s.stream); });
              (void)cu.cuStreamCreate(&s.stream, CU_STREAM_NON_BLOCKING);
            });
  (void)(goes_on && scene([&] {
           c("empty capture, end", [&] { return cu.cuStreamEndCapture(s.stream, &graph); });
           c("empty capture, end a second time",
             [&] { return cu.cuStreamEndCapture(s.stream, &other_graph); });
         }));
}

}  // namespace gpuloom::conformance
