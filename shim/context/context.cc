// SPDX-License-Identifier: Apache-2.0
#include "shim/context/context.h"

#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/runtime_tables.h"
#include "shim/context/green_context.h"
#include "shim/event/context_order.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/image/array.h"
#include "shim/image/texture.h"
#include "shim/image/texture_reference.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/memory/pool.h"
#include "shim/module/library.h"
#include "shim/process/futex.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

struct Primary {
  Context context = {};
  Lock lock;  // also held while the context is torn down
  uint32_t retained GPULOOM_GUARDED_BY(lock) = 0;
  std::atomic<uint32_t> epoch{1};
};
constinit Primary primary;

constexpr unsigned kKnownFlags = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                                 CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE |
                                 CU_CTX_SYNC_MEMOPS;

// Destroys everything that the program has created. Errors do not stop it: what cannot be destroyed
// by name goes when the session ends.
//
// The order matters: green contexts go before the streams that are in them, managed memory that
// migrates before the stream through which it is copied, textures before their arrays, libraries
// before their references. The epoch comes last: what threads remember under the old one is gone by
// then.
void TearDownLocked() GPULOOM_REQUIRES(primary.lock) {
  ResetRuntimeContext(PrimaryContext());
  graph::ForgetAllCaptures();
  graph::ForgetAllExecs();
  graph::ForgetGraphMemory();
  (void)session.WaitForAll();
  const uint32_t green = ForgetGreenContexts();
  primary.retained -= green < primary.retained ? green : primary.retained;
  ReleaseAllEvents();
  EndMigrating();
  ReleaseAllStreams();
  ForgetAllContextOrders();
  ReleaseAllViews();
  ReleaseAllArrays();
  ReleaseAllMemory();
  ResetAllLibraries();
  ResetReferences();
  ForgetContextObjects();
  primary.context.active.store(false, std::memory_order_release);
  primary.epoch.fetch_add(1, std::memory_order_acq_rel);
}

CUresult Release(CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  Holding holding(&primary.lock);
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained == 0) TearDownLocked();
  return CUDA_SUCCESS;
}

CUresult Reset(CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  Holding holding(&primary.lock);
  // References stay counted: CUDA's reset does not release them, and the next retain makes the
  // context active.
  if (primary.context.active.load(std::memory_order_relaxed)) TearDownLocked();
  return CUDA_SUCCESS;
}

CUresult SetFlags(CUdevice device, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (!ValidContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  primary.context.flags.store(flags, std::memory_order_relaxed);
  // The latest wish counts for the process: threads wait in one way, whichever context is current.
  session.SetWaitSchedule(flags & CU_CTX_SCHED_MASK);
  return CUDA_SUCCESS;
}

// Waits for a green context's own streams, or for all of the program's.
CUresult SynchronizeContext(const Context& context) {
  // CUDA ends captures of the context with an error when somebody waits for it.
  CUDA_RETURN_IF_ERROR(graph::RefuseWhileAnyCaptures());
  CUDA_RETURN_IF_ERROR(context.green != nullptr ? WaitForStreamsOf(*context.green)
                                                : session.WaitForAll());
  TrimAtSynchronisation();
  return session.TakeAsyncError();
}

}  // namespace

bool ValidContextFlags(unsigned flags) {
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~kKnownFlags) == 0 &&
         (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
          schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult ReleasePrimaryWith(bool (*end)(void* data), void* data) {
  Holding holding(&primary.lock);
  if (!end(data)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (primary.retained != 0 && --primary.retained == 0) TearDownLocked();
  return CUDA_SUCCESS;
}

// The stack grows and is freed with its thread. The current context is kept apart from those below
// it, because every call looks at it.
CUresult PushContext(CUcontext context) {
  ThreadState& thread = CurrentThread();
  if (thread.below_count == thread.below_capacity) {
    const uint32_t capacity = thread.below_capacity == 0 ? 8 : thread.below_capacity * 2;
    void* below = realloc(thread.below, capacity * sizeof(CUcontext));
    if (below == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    thread.below = static_cast<CUcontext*>(below);
    thread.below_capacity = capacity;
    HookThreadExit();
  }
  thread.below[thread.below_count++] = thread.current;
  thread.current = context;
  return CUDA_SUCCESS;
}

CUresult PopContext(CUcontext* context) {
  ThreadState& thread = CurrentThread();
  if (thread.current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = thread.current;
  thread.current = thread.below_count == 0 ? nullptr : thread.below[--thread.below_count];
  return CUDA_SUCCESS;
}

// Constant: a handle from before a reset is the same context, active again once it is retained.
CUcontext PrimaryContext() { return reinterpret_cast<CUcontext>(&primary.context); }
uint32_t ContextEpoch() { return primary.epoch.load(std::memory_order_acquire); }

Context* FindContext(CUcontext context) {
  if (context == nullptr) return reinterpret_cast<Context*>(CurrentThread().current);
  return context == PrimaryContext() ? &primary.context : FindCreatedContext(context);
}

uint64_t IdOf(const Context& context) {
  return &context == &primary.context ? ContextEpoch() : context.id;
}

// The handles of contexts point to memory that is never unmapped, so the current one is looked at
// without asking whether it still exists: an ended one is not active.
CUresult NeedContext() {
  if (const CUresult result = session.Check(); result != CUDA_SUCCESS) [[unlikely]] {
    return result;
  }
  const auto* current = reinterpret_cast<const Context*>(CurrentThread().current);
  if (current == nullptr) [[unlikely]] {
    // Our thread has no context, so that host functions which call CUDA, as CUDA forbids, end up
    // here.
    return InsideHostFunction() ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!current->active.load(std::memory_order_acquire)) [[unlikely]] {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

CUresult NeedSession() {
  CUDA_RETURN_IF_ERROR(session.Check());
  return InsideHostFunction() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult NeedDevice(CUdevice device) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (InsideHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  return device == kOnlyDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(session.Check());
  Holding holding(&primary.lock);
  ++primary.retained;
  primary.context.active.store(true, std::memory_order_release);
  *context = PrimaryContext();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return Release(device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return Release(device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return Reset(device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return Reset(device); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return SetFlags(device, flags);
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return SetFlags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = primary.context.flags.load(std::memory_order_relaxed);
  *active = primary.context.active.load(std::memory_order_acquire) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = CurrentThread().current;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (InsideHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (context == nullptr) {  // pops the current context, so that the one below it becomes current
    if (CurrentThread().current != nullptr) (void)PopContext(nullptr);
    return CUDA_SUCCESS;
  }
  // A destroyed green context may be made current, as with the driver; every use of it fails then.
  if (FindContext(context) == nullptr && !WasGreenContext(context)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  CurrentThread().current = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (InsideHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindContext(context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return PushContext(context);
}
CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  return PopContext(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxPopCurrent_v2(context); }

CUresult cuCtxGetDevice(CUdevice* device) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentThread().current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = kOnlyDevice;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = kOnlyDevice;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = FindContext(handle);
  if (context == nullptr || !context->active.load(std::memory_order_acquire)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  // 3020 is the ABI of contexts made by cuCtxCreate without a suffix; all others have the second.
  *version = context->api_version == 0 ? 3020 : context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = IdOf(*context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = FindContext(nullptr)->flags.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (!ValidContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  FindContext(nullptr)->flags.store(flags, std::memory_order_relaxed);
  session.SetWaitSchedule(flags & CU_CTX_SCHED_MASK);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config =
      static_cast<CUfunc_cache>(FindContext(nullptr)->cache_config.load(std::memory_order_relaxed));
  return CUDA_SUCCESS;
}

// A preference that current devices ignore: remembered, and shown when asked.
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FindContext(nullptr)->cache_config.store(config, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// Banks have one width since Volta: the setting has no effect there either.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
                 config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (least != nullptr) *least = session.device().stream_priority_least;
  if (greatest != nullptr) *greatest = session.device().stream_priority_greatest;
  return CUDA_SUCCESS;
}

// A context with a share of its own is the operator's to give (smPercent), not the program's to
// make.
CUresult cuCtxGetExecAffinity(CUexecAffinityParam* affinity, CUexecAffinityType) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (affinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

// There is one device, so there is no peer.
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return peer == nullptr || FindContext(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                                                         : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return peer == nullptr || FindContext(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                                                         : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

// There is nothing to reset: no tenant may set aside a part of the cache that all share.
CUresult cuCtxResetPersistingL2Cache() { return NeedContext(); }

CUresult cuCtxSynchronize() {
  CUDA_RETURN_IF_ERROR(NeedContext());
  return SynchronizeContext(*FindContext(nullptr));
}

// Needs no current context if one is named.
CUresult cuCtxSynchronize_v2(CUcontext handle) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  const Context* context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUDA_RETURN_IF_ERROR(NeedSession());
  return SynchronizeContext(*context);
}

}  // extern "C"
