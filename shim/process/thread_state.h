// SPDX-License-Identifier: Apache-2.0
// The state of one of the program's threads: its stack of current contexts, its default stream. Plain thread-local
// words, used by their own thread only and owned by it: HookThreadExit frees them when it ends. In a thread that has
// never called CUDA they are all zero.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct ThreadState {
  CUcontext current;
  CUcontext* below;  // those pushed below `current`, malloc'ed, oldest first
  uint32_t below_count;
  uint32_t below_capacity;
  wire::StreamId stream;  // the per-thread default stream; 0: not made yet
  uint32_t stream_epoch;  // of the context it was made in, see context.h
  bool exit_hooked;
};

// The calling thread's state.
ThreadState& CurrentThread();

// Arranges that the thread's stream and memory are released when the thread ends.
void HookThreadExit();

}  // namespace gpuloom
