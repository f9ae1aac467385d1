// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in a stream's order: kept here by number, and run on one thread
// of ours when the executor says that their turn has come (proto/wire/host_function_commands.h).
//
// The thread (thread.h) starts with the first function. It sleeps without any
// cost to others while nothing is expected, and never ends before the process unless the session is
// lost; then it hands the error to the callbacks that are still kept, as CUDA does, and drops the
// functions. A child of fork has neither the thread nor a session.
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

namespace gpuloom {

struct KeptHostFunction {
  CUhostFn function = nullptr;          // one of the two
  CUstreamCallback callback = nullptr;  // told of errors, and of the stream
  CUstream stream = nullptr;            // as the program passed it
  void* data = nullptr;
  bool stays = false;  // is run as often as it is asked for; otherwise it is forgotten when it runs
};

// An id that is never used again; 0 when there is no memory.
[[nodiscard]] uint64_t KeepHostFunction(const KeptHostFunction& function);
// What is being run while this is called may still be running when it returns.
void ForgetHostFunction(uint64_t id);

// Before the executor can ask: so many runs will come. Counts exactly: while runs are expected the
// thread watches the executor.
[[nodiscard]] CUresult ExpectHostFunctions(uint32_t runs);
// What was expected is not going to be posted.
void UnexpectHostFunctions(uint32_t runs);

// Whether functions that were expected have not returned yet: what they write may still change.
bool HostFunctionsPending();

// True on the thread, while it runs a function of the program's: CUDA forbids CUDA calls there.
bool InsideHostFunction();

}  // namespace gpuloom
