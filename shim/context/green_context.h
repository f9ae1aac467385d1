// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of the device's multiprocessors with streams of their own
// (docs/design/green-contexts.md). Each is also a Context, which cuCtxFromGreenCtx returns; what is
// made while that one is current belongs to the primary context, except streams.
//
// The stream handles of a destroyed one remain; they answer that the context is destroyed. Safe
// from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/green_context_commands.h"
#include "shim/context/context.h"

namespace gpuloom {

struct ResourceDescription;

struct GreenContext {
  std::atomic<uint32_t> alive;
  std::atomic<bool> made;         // the program has it
  wire::StreamId default_stream;  // what a null stream is while it is current
  Context* context;
  const ResourceDescription* description;
};

// Whether the program has ever made one: calls with a null stream check further only then.
extern std::atomic<bool> green_contexts_used;
inline bool GreenContextsUsed() { return green_contexts_used.load(std::memory_order_relaxed); }

// The live green context whose Context is current in the calling thread, or nullptr.
GreenContext* CurrentGreenContext();
// Whether it is what cuCtxFromGreenCtx returns.
inline bool IsGreenContext(CUcontext context) {
  return reinterpret_cast<const Context*>(context)->green != nullptr;
}
wire::GreenContextId IdOf(const GreenContext* green);
CUgreenCtx HandleOf(const GreenContext* green);

// For a reset of the primary context: returns how many references to it they held.
uint32_t ForgetGreenContexts();

}  // namespace gpuloom
