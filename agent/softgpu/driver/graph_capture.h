// SPDX-License-Identifier: Apache-2.0
// This driver's streams for captures, and its kernels as graph nodes. Each operation of a stream
// asks before it is queued, after its arguments were judged (proto/libcuda/graph/capture.h):
//
//   CUresult captured = CUDA_SUCCESS;
//   if (Records(*stream, &captured, [&](graph::NodeParams* node) { …; return CUDA_SUCCESS; })) {
//     return captured;
//   }
//
// Safe from any thread.
#pragma once

#include <functional>

#include "agent/softgpu/driver/stream.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/node.h"

namespace gpuloom::softgpu {

graph::StreamRef RefOf(const Stream& stream);

template <typename Make>
[[nodiscard]] bool Records(const Stream& stream, CUresult* result, Make&& make) {
  return graph::AnyCapture() && graph::Records(RefOf(stream), result, make);
}

[[nodiscard]] inline CUresult RefuseInCapture(const Stream& stream) {
  return graph::AnyCapture() ? graph::RefuseInCapture(RefOf(stream)) : CUDA_SUCCESS;
}

// Call before waiting for the stream, or asking whether it is done.
[[nodiscard]] inline CUresult RefuseToWait(const Stream& stream) {
  return graph::AnyCapture() ? graph::RefuseToWait(RefOf(stream)) : CUDA_SUCCESS;
}

// Checks a kernel node as a launch is checked; `run` then runs it.
[[nodiscard]] CUresult PrepareKernel(const graph::KernelParams& params, std::function<void()>& run);

}  // namespace gpuloom::softgpu
