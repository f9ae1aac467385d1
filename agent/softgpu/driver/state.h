// SPDX-License-Identifier: Apache-2.0
// The life of this driver inside one process: not yet initialised, ready, faulted, forked,
// unloading.
//
// A fault (illegal address, trap …) is sticky for the whole process, as on the real driver: the
// first one is kept, and every later call that needs a context returns it. Other processes are not
// affected, because they have a driver of their own. A child made by fork has none of the parent's
// threads, so there every call returns CUDA_ERROR_NOT_INITIALIZED. Everything here is safe from any
// thread.
#pragma once

#include <atomic>
#include <string_view>

#include "agent/softgpu/driver/print_line.h"
#include "agent/softgpu/driver/settings.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

// cuInit: reads the settings and makes the devices, once. Flags must be 0.
[[nodiscard]] CUresult Start(unsigned flags);

// CUDA_SUCCESS when calls may go on; NOT_INITIALIZED before cuInit and in a forked child,
// DEINITIALIZED while the process exits, NOT_PERMITTED inside a host function that a stream runs.
[[nodiscard]] CUresult Ready();

// Ready() and no fault so far.
[[nodiscard]] CUresult Healthy();

// The settings in force; valid after Start succeeded.
const Settings& CurrentSettings();

// The sticky fault, or CUDA_SUCCESS.
[[nodiscard]] CUresult Fault();

// Makes `code` the sticky fault unless there is one, and reports the reason on stderr.
void RecordFault(CUresult code, std::string_view reason);
// The same, because `what` ("a copy") needed memory that is gone.
void RecordMemoryLost(std::string_view what, uint64_t address, uint64_t size_bytes);

// Set at a fault and while the process exits, so that running kernels and waits end.
const std::atomic<bool>& Stopping();

// Marks the calling thread as one that runs a user's host function, in which CUDA forbids CUDA
// calls.
class InsideHostFunction {
 public:
  InsideHostFunction();
  ~InsideHostFunction();
  InsideHostFunction(const InsideHostFunction&) = delete;
  InsideHostFunction& operator=(const InsideHostFunction&) = delete;
};

}  // namespace gpuloom::softgpu
