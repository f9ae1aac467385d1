// The device's primary context, the only one: its handle, its reference count, and what is torn
// down when it is reset. Handles stay valid addresses for ever; an inactive context refuses work.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/session.h"
#include "shim/thread_state.h"

namespace gpuloom {

inline constexpr CUdevice kOnlyDevice = 0;

// What every cuCtx* handle of ours points to.
CUcontext PrimaryContext();

// Counts resets: what a thread remembers of an earlier epoch is gone.
uint32_t ContextEpoch();
bool ContextIsActive();

// For calls that work in the current context: initialised, session alive, a context current and
// active. On the path of every launch.
[[nodiscard]] CUresult NeedContext();

// CUDA_ERROR_INVALID_DEVICE unless it is ours. Includes NOT_INITIALIZED, but not the session's
// loss: facts about the device stay available.
[[nodiscard]] CUresult NeedDevice(CUdevice device);

// True for the context's handle and for null while one is current.
bool IsContext(CUcontext context);

}  // namespace gpuloom
