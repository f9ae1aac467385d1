// SPDX-License-Identifier: Apache-2.0
// Contexts: the device's primary one and those that the program creates. The executor has one real
// context; to the program each of these is a separate one, with a handle, flags, stored values and
// the objects created in it, which are destroyed with it. Their work shares the tenant's streams,
// the legacy default stream included. Handles stay valid addresses for ever; an inactive context
// refuses work. Safe from any thread. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/process/thread_state.h"
#include "shim/session/session.h"

namespace gpuloom {

inline constexpr CUdevice kOnlyDevice = 0;

// The object to which each of our CUcontexts points.
struct GreenContext;

struct Context {
  std::atomic<uint32_t> alive;  // the handle is valid; of created ones
  std::atomic<bool> active;
  std::atomic<unsigned> flags;
  std::atomic<int> cache_config;
  std::atomic<uint32_t> users;  // of created ones: cuCtxAttach and cuCtxDetach count
  std::atomic<bool> ending;     // of created ones: a thread is destroying it
  uint32_t api_version;
  uint64_t id;             // of created ones
  GreenContext* green;     // null: not of one
  uint32_t newest_object;  // of created ones (context_objects.h)
};

CUcontext PrimaryContext();

// Counts resets: whatever a thread remembers from an earlier epoch has ended.
uint32_t ContextEpoch();

// For calls that work in the current context: initialised, session alive, a context current and
// active. On the path of every launch.
[[nodiscard]] CUresult NeedContext();

// For calls that need no current context but wait, or send something: initialised, session alive, and not within a host
// function, for which such a call would wait.
[[nodiscard]] CUresult NeedSession();

// CUDA_ERROR_INVALID_DEVICE unless it is ours. Includes NOT_INITIALIZED, but not a lost session:
// facts about the device stay available.
[[nodiscard]] CUresult NeedDevice(CUdevice device);

// The context behind a handle, or for null the current one; nullptr if there is none.
Context* FindContext(CUcontext context);
inline bool IsContext(CUcontext context) { return FindContext(context) != nullptr; }
uint64_t IdOf(const Context& context);

[[nodiscard]] bool ValidContextFlags(unsigned flags);
// Push to and pop from the calling thread's stack of contexts.
[[nodiscard]] CUresult PushContext(CUcontext context);
[[nodiscard]] CUresult PopContext(CUcontext* context);

// Created contexts (created_context.cc).
Context* FindCreatedContext(CUcontext context);
// Makes and ends a context that is current in no thread.
[[nodiscard]] Context* MakeContextOf(GreenContext* green);
void EndContext(Context* context);
// Whether it belonged to a green context that was destroyed: it may be made current, but then refuses everything.
bool WasGreenContext(CUcontext context);
// `end` is called while no other thread retains, releases or resets the primary context. It returns
// true if it has destroyed what held a reference; else the result is
// CUDA_ERROR_CONTEXT_IS_DESTROYED.
[[nodiscard]] CUresult ReleasePrimaryWith(bool (*end)(void* data), void* data);
void ForgetContextObjects();  // call it after a reset of the primary context, which ends everything

// Objects made in a created context are destroyed with it; for the primary one nothing is noted. Pools, what is
// allocated from them, and memory of cuMemCreate belong to the device.
enum class ContextObjectKind : uint32_t {
  kStream,
  kEvent,
  kModule,
  kDeviceMemory,
  kHostMemory,
  kOpenedMemory,  // another process's, by where its mapping begins; once for each time it is opened
  kArray,
  kMipmap,
  kTexture,
  kSurface,
  kLink,
};
void NoteContextObject(ContextObjectKind kind, uint64_t handle);
void ForgetContextObject(ContextObjectKind kind, uint64_t handle);
// The context in which the object was made.
CUcontext ContextOf(ContextObjectKind kind, uint64_t handle);

}  // namespace gpuloom
