// SPDX-License-Identifier: Apache-2.0
// Stream capture for this process's streams. proto/libcuda/graph/capture.h says how an operation of a stream is
// recorded instead of sent. Owns nothing; safe from any thread: the graph model's lock is taken inside, so the caller
// must not hold it. Every function returns the result for the program's call: *result when Records… is true.
//
//   CUresult result;
//   if (Records(stream, &result, [&](graph::NodeParams* node) { …; return CUDA_SUCCESS; })) {
//     return result;
//   }
#pragma once

#include "proto/libcuda/graph/capture.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct Kernel;

[[nodiscard]] graph::StreamRef RefOf(wire::StreamId stream);

template <typename Make>
[[nodiscard]] bool Records(wire::StreamId stream, CUresult* result, Make&& make) {
  return graph::AnyCapture() && graph::Records(RefOf(stream), result, make);
}

// For operations that a graph cannot hold: see graph::RefuseInCapture.
[[nodiscard]] inline CUresult RefuseInCapture(wire::StreamId stream) {
  return graph::AnyCapture() ? graph::RefuseInCapture(RefOf(stream)) : CUDA_SUCCESS;
}
[[nodiscard]] inline CUresult RefuseToWait(wire::StreamId stream) {
  return graph::AnyCapture() ? graph::RefuseToWait(RefOf(stream)) : CUDA_SUCCESS;
}

// A launch that was checked, with the attributes the program gave it; the parameters have not been
// read.
[[nodiscard]] bool RecordsLaunch(wire::StreamId stream, const Kernel& kernel,
                                 const CUDA_KERNEL_NODE_PARAMS_v3& launch,
                                 const CUlaunchAttribute* attributes, uint32_t attribute_count,
                                 CUresult* result);

// What a launch of that shape would return.
[[nodiscard]] CUresult CheckLaunchShape(const graph::KernelParams& launch, const Kernel& kernel);

}  // namespace gpuloom
