// SPDX-License-Identifier: Apache-2.0
// cuCtx* and cuDevicePrimaryCtx*: contexts, the calling thread's stack of them, their settings.
// Settings that change nothing on a CPU (scheduling, caches, bank widths) are judged, kept and
// given back.
#include "agent/softgpu/driver/context.h"

#include <algorithm>

#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/mutex.h"

namespace graph = gpuloom::graph;
using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Like the real driver's: what a thread's local memory may be at most.
constexpr size_t kMaxStackBytes = size_t{512} << 10;

// CUDA's flags, of which at most one may say how threads wait.
bool ValidFlags(unsigned flags) {
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 &&
         (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
          schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

// The new context is made current, as CUDA does; without room on the stack it would have no use, so
// it goes again.
CUresult Create(CUcontext* created, unsigned flags, CUdevice ordinal) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (created == nullptr || !ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = MakeContext(*device, flags);
  const CUresult pushed = PushContext(context);
  if (pushed != CUDA_SUCCESS) {
    static_cast<void>(context->TearDown());
    return pushed;
  }
  *created = context->handle();
  return CUDA_SUCCESS;
}

// The context that a handle names, or the current one for NULL.
CUresult Choose(CUcontext handle, Context*& context) {
  if (handle == nullptr) return RequireCurrentContext(context);
  CUDA_RETURN_IF_ERROR(Healthy());
  context = FindContext(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

unsigned FlagsOf(Context& context) {
  const gpuloom::MutexLock lock(context.mutex);
  return context.flags;
}

// Checks that the driver is initialised, and finds the device's primary context.
CUresult Primary(CUdevice ordinal, Context*& context) {
  CUDA_RETURN_IF_ERROR(Ready());
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  context = device->primary;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCtxCreate(CUcontext* created, unsigned flags, CUdevice device) {
  return Create(created, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext* created, unsigned flags, CUdevice device) {
  return Create(created, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* created, CUexecAffinityParam* affinities, int affinity_count,
                        unsigned flags, CUdevice device) {
  // No device here offers affinity to some of its multiprocessors.
  if (affinities != nullptr && affinity_count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return Create(created, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* created, CUctxCreateParams* params, unsigned flags,
                        CUdevice device) {
  if (params != nullptr) {
    if (params->execAffinityParams != nullptr && params->numExecAffinityParams > 0) {
      return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    // Sharing with graphics is not offered.
    if (params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Create(created, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = FindContext(handle);
  // Primary contexts are released, green ones destroyed by calls of their own.
  if (context == nullptr || context->primary || context->green != nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  // Only the calling thread's top: other threads that have it current get CONTEXT_IS_DESTROYED from
  // then on.
  if (CurrentContext() == context) {
    Context* popped = nullptr;
    static_cast<void>(PopContext(popped));
  }
  // Another thread may be destroying it at the same time.
  return context->TearDown() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

CUresult cuCtxGetCurrent(CUcontext* current) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (current == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = CurrentContext();
  *current = context == nullptr ? nullptr : context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (handle == nullptr) return SetContext(nullptr);
  // A primary context may be made current before it is retained, as cudart does, and a green one
  // when it is gone; calls fail then.
  for (Context* context : AllContexts()) {
    if (context->handle() == handle &&
        (context->primary || context->green != nullptr || context->alive)) {
      return SetContext(context);
    }
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = FindContext(handle);
  // Unlike cuCtxSetCurrent: only a context that lives can be pushed.
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : PushContext(context);
}

CUresult cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

CUresult cuCtxPopCurrent_v2(CUcontext* popped) {
  CUDA_RETURN_IF_ERROR(Ready());
  Context* context = nullptr;
  const CUresult result = PopContext(context);
  if (result == CUDA_SUCCESS && popped != nullptr) *popped = context->handle();
  return result;
}

CUresult cuCtxPopCurrent(CUcontext* popped) { return cuCtxPopCurrent_v2(popped); }

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Needs no healthy context: programs ask for the device while they clean up after a fault.
  Context* context = handle == nullptr ? CurrentContext() : FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device.ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Choose(handle, context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Choose(handle, context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;  // the newest context ABI, which is what every context here has
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Choose(handle, context));
  // CUDA forbids it while any stream is being captured.
  CUDA_RETURN_IF_ERROR(graph::RefuseWhileAnyCaptures());
  // Green contexts are part of the primary one.
  for (Context* part : WithGreenContexts(*context)) WaitFor(part->AllPoints());
  return Fault();
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_SHMEM_SIZE) return CUDA_ERROR_NOT_PERMITTED;
  if (limit > CU_LIMIT_SHMEM_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;  // these can only be read
  // The heap is one piece: once a kernel has asked for memory its size cannot change.
  if ((limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128) ||
      (limit == CU_LIMIT_STACK_SIZE && value > kMaxStackBytes) ||
      (limit == CU_LIMIT_MALLOC_HEAP_SIZE && context->heap.in_use())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (limit == CU_LIMIT_STACK_SIZE) context->NeedThreadBytes(value);
  const gpuloom::MutexLock lock(context->mutex);
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  *config = context->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (!ValidCacheConfig(config)) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  context->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  *config = context->shared_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (!ValidSharedConfig(config)) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  context->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() {
  Context* context = nullptr;
  return RequireContext(context);
}

// Devices of one process share its address space, so there is nothing to switch.
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* other = FindContext(peer);
  if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return other == context ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  const CUresult result = cuCtxEnablePeerAccess(peer, 0);
  return result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : result;
}

// Retained, it is alive, for every thread that has retained it; the first one finds it as a new
// one, with the flags that were set before.
CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice ordinal) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Primary(ordinal, context));
  if (retained == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Fault() != CUDA_SUCCESS) return Fault();
  const gpuloom::MutexLock lock(context->life_mutex);
  if (context->retain_count++ == 0 && !context->alive) context->Activate(FlagsOf(*context));
  *retained = context->handle();
  return CUDA_SUCCESS;
}

// The last one who releases it ends it.
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Primary(ordinal, context));
  const gpuloom::MutexLock lock(context->life_mutex);
  if (context->retain_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->retain_count == 0) static_cast<void>(context->TearDown());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Primary(ordinal, context));
  const gpuloom::MutexLock lock(context->life_mutex);
  // First its green contexts, each of which held a reference.
  const unsigned green = TearDownGreenContexts(context->device);
  context->retain_count -= std::min(green, context->retain_count);
  // A capture in a stream of the context would be left with handles that are gone.
  graph::ForgetAllCaptures();
  static_cast<void>(context->TearDown());
  // Whoever has retained it continues with an empty context.
  if (context->retain_count > 0) context->Activate(FlagsOf(*context));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) { return cuDevicePrimaryCtxReset_v2(ordinal); }

// May be set before the context is retained, and after.
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Primary(ordinal, context));
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Primary(ordinal, context));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(context->mutex);
  *flags = context->flags;
  *active = context->alive ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
