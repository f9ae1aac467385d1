// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of the device's multiprocessors with streams of their own
// (docs/design/green-contexts.md). Each is a Context too, which cuCtxFromGreenCtx gives; what is
// made while that one is current is the primary context's, but for streams.
//
// A destroyed one leaves the handles of its streams behind; they answer that the context is
// destroyed. From any thread.
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
  std::atomic<bool> made;         // it is the program's
  wire::StreamId default_stream;  // what a null stream is while it is current
  Context* context;
  const ResourceDescription* description;
};

// Whether the program has ever made one: calls with a null stream look only then.
extern std::atomic<bool> green_contexts_used;
inline bool GreenContextsUsed() { return green_contexts_used.load(std::memory_order_relaxed); }

// The living green context whose Context the calling thread has current, or nullptr.
GreenContext* CurrentGreenContext();
// What cuCtxFromGreenCtx gives.
inline bool IsGreenContext(CUcontext context) {
  return reinterpret_cast<const Context*>(context)->green != nullptr;
}
wire::GreenContextId IdOf(const GreenContext* green);
CUgreenCtx HandleOf(const GreenContext* green);

// For the reset of the primary context: how many references to it they held.
uint32_t ForgetGreenContexts();

}  // namespace gpuloom
