// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in a stream's order: kept here by number, and run on one thread
// of ours when the executor says that they are due (proto/wire/host_function_commands.h).
//
// The thread (thread.h) starts with the first function. It sleeps at no cost to others while
// nothing is expected, and never ends before the process unless the session is lost; then it passes
// the error to the callbacks still kept, as CUDA does, and drops the functions. A child of fork has
// neither the thread nor a session.
//
//   const uint64_t id = KeepHostFunction({.function = f, .data = d});
//   if (id == 0 || !ExpectHostFunctions(1)) …
//   post a command that makes the executor ask for `id` once; when that fails:
//   UnexpectHostFunctions(1); ForgetHostFunction(id);
//
// Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct KeptHostFunction {
  CUhostFn function = nullptr;          // one of the two
  CUstreamCallback callback = nullptr;  // gets errors and the stream
  CUstream stream = nullptr;            // as the program passed it
  void* data = nullptr;
  bool stays = false;  // may run repeatedly; otherwise it is forgotten when it runs
};

// An id that is never reused; 0 if out of memory.
[[nodiscard]] uint64_t KeepHostFunction(const KeptHostFunction& function);
// A run in progress may still be going on when this returns.
void ForgetHostFunction(uint64_t id);

// Makes the executor ask for the function once, in the stream's order. It may run before this returns. When this
// fails, it never runs.
[[nodiscard]] CUresult PostHostFunction(wire::StreamId stream, const KeptHostFunction& function);
// Starts the thread, which otherwise the first function does.
[[nodiscard]] CUresult StartHostFunctions();

// Call before the executor can ask: this many runs will come. Counts exactly: while runs are
// expected the thread watches the executor.
[[nodiscard]] CUresult ExpectHostFunctions(uint32_t runs);
// Expected runs will not be posted after all.
void UnexpectHostFunctions(uint32_t runs);

// Whether expected functions have not returned yet: what they write may still change.
bool HostFunctionsPending();

// Returns true on the thread while it runs a function of the program: CUDA forbids CUDA calls
// there.
bool InsideHostFunction();

}  // namespace gpuloom
