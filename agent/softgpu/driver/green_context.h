// SPDX-License-Identifier: Apache-2.0
// Green contexts: a name and a number of multiprocessors for streams of their own. They share
// everything else with the device's primary context, and execution does not know them: a software
// multiprocessor is a thread of the process that uses it. Safe from any thread.
#pragma once

#include "agent/softgpu/driver/context.h"
#include "proto/libcuda/device_resource.h"

namespace gpuloom::softgpu {

// What a green context has besides its streams. Its address is the CUgreenCtx, so that an unconverted handle is not a
// context's handle.
struct Green {
  const ResourceDescription* description;

  [[nodiscard]] CUgreenCtx handle() { return reinterpret_cast<CUgreenCtx>(this); }
};

// Finds the living green context that a handle names. INVALID_CONTEXT, or CONTEXT_IS_DESTROYED.
CUresult FindGreenContext(CUgreenCtx handle, Context*& context);

// Ends the device's green contexts when its primary context ends. Returns how many references they held to it.
unsigned TearDownGreenContexts(const Device& device);

// The context; for a primary one also its green ones, which are a part of it.
std::vector<Context*> WithGreenContexts(Context& context);

}  // namespace gpuloom::softgpu
