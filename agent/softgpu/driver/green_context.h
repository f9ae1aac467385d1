// SPDX-License-Identifier: Apache-2.0
// Green contexts: a name and a number of multiprocessors for streams of their own. They share
// everything else with the device's primary context, and execution does not know them: a software
// multiprocessor is a thread of the process that uses it. Safe from any thread.
#pragma once

#include "agent/softgpu/driver/context.h"
#include "proto/libcuda/device_resource.h"

namespace gpuloom::softgpu {

// What a green context is beside its streams. Its address is the CUgreenCtx, so that an unconverted
// handle is none of a context.
struct Green {
  const ResourceDescription* description;

  [[nodiscard]] CUgreenCtx handle() { return reinterpret_cast<CUgreenCtx>(this); }
};

// The living green context that a handle names. INVALID_CONTEXT, or CONTEXT_IS_DESTROYED.
CUresult FindGreenContext(CUgreenCtx handle, Context*& context);

// The primary context ends: so do the green ones of its device. How many references they held to it.
unsigned TearDownGreenContexts(const Device& device);

// The context, and when it is a primary one its green ones, which are a part of it.
std::vector<Context*> WithGreenContexts(Context& context);

}  // namespace gpuloom::softgpu
