// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from and to registered memory that the device does not reach: the call returns at once, and the
// thread of host functions makes the copy when the stream has come to it (shim/stream/host_function.h). The copy is
// staged and goes in pieces through a stream of ours, because the program's stream is held until all of it is done.
//
//   CUDA_RETURN_IF_ERROR(QueueCopy(stream, copy, &Run));   // calls Run(copy, our stream) in the stream's order
//
// Run returns when everything has arrived. Safe from any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// Makes what queued copies need: thread, stream and staging. NOT_SUPPORTED where the process can have no threads, or
// no pinned memory is left; copies are then made by their callers.
[[nodiscard]] CUresult PrepareQueuedCopies();

struct QueuedCopy {
  static constexpr size_t kMostBytes = 256;

  void (*run)(const QueuedCopy&);
  wire::StreamId on;
  uint32_t unused;
  alignas(8) uint8_t what[kMostBytes];
};

// The failures are those of PrepareQueuedCopies and of the session.
[[nodiscard]] CUresult PostQueuedCopy(wire::StreamId stream, QueuedCopy copy);

template <auto run, typename Copy>
[[nodiscard]] CUresult QueueCopy(wire::StreamId stream, const Copy& copy) {
  static_assert(std::is_trivially_copyable_v<Copy> && sizeof(Copy) <= QueuedCopy::kMostBytes);
  QueuedCopy queued = {};
  queued.run = [](const QueuedCopy& which) {
    Copy what;
    memcpy(&what, which.what, sizeof(what));
    run(what, which.on);
  };
  memcpy(queued.what, &copy, sizeof(copy));
  return PostQueuedCopy(stream, queued);
}

}  // namespace gpuloom
