// SPDX-License-Identifier: Apache-2.0
// Contexts that the program creates, and what is made in them.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/runtime_tables.h"
#include "shim/context/context.h"
#include "shim/context/context_objects.h"
#include "shim/event/context_order.h"
#include "shim/memory/memory.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/handle_table.h"
#include "shim/stream/host_function.h"

namespace gpuloom {
namespace {

constexpr uint32_t kMaxContexts = 1024;
// A handle is reused only after so many other contexts were destroyed, so that a stale one is an
// error and not another context.
constexpr size_t kRestingContexts = 256;

struct Created {
  HandleTable<Context, kMaxContexts> table;
  Lock lock;
  Growing<uint32_t> resting GPULOOM_GUARDED_BY(lock);
  ContextObjects made GPULOOM_GUARDED_BY(lock);
  // The primary context's are small numbers.
  uint64_t last_id GPULOOM_GUARDED_BY(lock) = uint64_t{1} << 32;
  std::atomic<size_t> made_count{0};  // so that programs without such contexts take no lock
};
constinit Created created;

// Makes a context and pushes it onto the calling thread's stack, as cuCtxCreate does. Nothing is
// sent: to the executor there is one context.
CUresult Create(CUcontext* handle, unsigned flags, CUdevice device, uint32_t api_version) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (handle == nullptr || !ValidContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(session.Check());
  Context* context;
  {
    Holding holding(&created.lock);
    context = created.table.Take(created.lock);
    if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    context->id = ++created.last_id;
  }
  context->flags.store(flags, std::memory_order_relaxed);
  context->cache_config.store(CU_FUNC_CACHE_PREFER_NONE, std::memory_order_relaxed);
  context->users.store(1, std::memory_order_relaxed);
  context->api_version = api_version;
  context->active.store(true, std::memory_order_release);
  const CUresult result = PushContext(reinterpret_cast<CUcontext>(context));
  if (result != CUDA_SUCCESS) {
    Holding holding(&created.lock);
    context->active.store(false, std::memory_order_release);
    created.table.Give(created.lock, context);
    return result;
  }
  session.SetWaitSchedule(flags & CU_CTX_SCHED_MASK);
  *handle = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

void GiveContext(Context* context) {
  Holding holding(&created.lock);
  context->active.store(false, std::memory_order_release);
  created.table.Give(created.lock, context, /*reuse=*/false);
  // If there is no memory to remember it, the id is lost, which costs nothing else.
  (void)created.resting.Push(created.table.IdOf(context));
  if (created.resting.count() > kRestingContexts) {
    created.table.Reuse(created.lock, created.resting[0]);
    created.resting.Remove(0);
  }
}

// The newest first: an object is destroyed before those that it was made from.
bool TakeNewestOf(const Context* context, ContextObjects::Object* made) {
  Holding holding(&created.lock);
  const bool took = created.made.TakeNewest(context, made);
  created.made_count.store(created.made.count(), std::memory_order_release);
  return took;
}

// Errors do not stop it: what cannot be destroyed by name goes when the session ends.
void DestroyMade(const ContextObjects::Object& made) {
  switch (made.kind) {
    case ContextObjectKind::kStream:
      (void)cuStreamDestroy_v2(reinterpret_cast<CUstream>(made.handle));
      return;
    case ContextObjectKind::kEvent:
      (void)cuEventDestroy_v2(reinterpret_cast<CUevent>(made.handle));
      return;
    case ContextObjectKind::kModule:
      (void)cuModuleUnload(reinterpret_cast<CUmodule>(made.handle));
      return;
    case ContextObjectKind::kDeviceMemory:
      (void)cuMemFree_v2(made.handle);
      return;
    case ContextObjectKind::kHostMemory:
      (void)cuMemFreeHost(reinterpret_cast<void*>(made.handle));
      return;
    case ContextObjectKind::kOpenedMemory:
      CloseShared(made.handle);
      return;
    case ContextObjectKind::kArray:
      (void)cuArrayDestroy(reinterpret_cast<CUarray>(made.handle));
      return;
    case ContextObjectKind::kMipmap:
      (void)cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(made.handle));
      return;
    case ContextObjectKind::kTexture:
      (void)cuTexObjectDestroy(made.handle);
      return;
    case ContextObjectKind::kSurface:
      (void)cuSurfObjectDestroy(made.handle);
      return;
    case ContextObjectKind::kLink:
      (void)cuLinkDestroy(reinterpret_cast<CUlinkState>(made.handle));
      return;
  }
}

// Streams of other contexts are waited for, too: what they run may use this context's memory.
CUresult Destroy(CUcontext handle) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (InsideHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = FindCreatedContext(handle);
  if (context == nullptr || context->green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // It stays valid while what was made in it is destroyed, so its handle alone does not tell.
  if (context->ending.exchange(true)) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadState& thread = CurrentThread();
  const CUcontext before = thread.current;
  thread.current = handle;  // objects are destroyed in their own context
  ResetRuntimeContext(handle);
  if (session.Check() == CUDA_SUCCESS) (void)session.WaitForAll();
  for (ContextObjects::Object made; TakeNewestOf(context, &made);) DestroyMade(made);
  ForgetContextOrder(handle);
  thread.current = before;
  if (before == handle) (void)PopContext(nullptr);
  GiveContext(context);
  return CUDA_SUCCESS;
}

CUresult CheckAffinity(const CUexecAffinityParam* params, int count) {
  if (count < 0 || (count != 0 && params == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  // The operator decides on the share of multiprocessors, not the program.
  return count == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

}  // namespace

Context* FindCreatedContext(CUcontext context) { return created.table.Find(context); }

Context* MakeContextOf(GreenContext* green) {
  Holding holding(&created.lock);
  Context* context = created.table.Take(created.lock);
  if (context == nullptr) return nullptr;
  context->id = ++created.last_id;
  const auto* primary = reinterpret_cast<const Context*>(PrimaryContext());
  context->flags.store(primary->flags.load(std::memory_order_relaxed), std::memory_order_relaxed);
  context->cache_config.store(CU_FUNC_CACHE_PREFER_NONE, std::memory_order_relaxed);
  context->users.store(1, std::memory_order_relaxed);
  context->api_version = 3020;
  context->green = green;
  context->active.store(true, std::memory_order_release);
  return context;
}

bool WasGreenContext(CUcontext context) {
  const Context* gone = created.table.FindGone(context);
  return gone != nullptr && gone->green != nullptr;
}

void EndContext(Context* context) {
  ResetRuntimeContext(reinterpret_cast<CUcontext>(context));
  GiveContext(context);
}

void ForgetContextObjects() {
  Holding holding(&created.lock);
  created.made.Clear();
  created.made_count.store(0, std::memory_order_release);
}

void NoteContextObject(ContextObjectKind kind, uint64_t handle) {
  // What is made in a green context belongs to the primary one, except its streams
  // (green_context.h).
  const CUcontext current = CurrentThread().current;
  if (current == PrimaryContext() || reinterpret_cast<const Context*>(current)->green != nullptr) {
    return;
  }
  Holding holding(&created.lock);
  // If this fails, it is destroyed with the session instead of with its context.
  (void)created.made.Add({reinterpret_cast<Context*>(current), handle, kind});
  created.made_count.store(created.made.count(), std::memory_order_release);
}

void ForgetContextObject(ContextObjectKind kind, uint64_t handle) {
  if (created.made_count.load(std::memory_order_acquire) == 0) return;
  Holding holding(&created.lock);
  created.made.Remove(kind, handle);
  created.made_count.store(created.made.count(), std::memory_order_release);
}

CUcontext ContextOf(ContextObjectKind kind, uint64_t handle) {
  if (created.made_count.load(std::memory_order_acquire) == 0) return PrimaryContext();
  Holding holding(&created.lock);
  Context* context = created.made.ContextOf(kind, handle);
  return context == nullptr ? PrimaryContext() : reinterpret_cast<CUcontext>(context);
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return Create(context, flags, device, 3010);
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return Create(context, flags, device, 3020);
}
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count, unsigned flags,
                        CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  CUDA_RETURN_IF_ERROR(CheckAffinity(params, count));
  return Create(context, flags, device, 3020);
}
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned flags,
                        CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (params != nullptr) {
    CUDA_RETURN_IF_ERROR(CheckAffinity(params->execAffinityParams, params->numExecAffinityParams));
    if (params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // shared with graphics
  }
  return Create(context, flags, device, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext context) { return Destroy(context); }
CUresult cuCtxDestroy(CUcontext context) { return Destroy(context); }

CUresult cuCtxAttach(CUcontext* handle, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = FindContext(nullptr);
  context->users.fetch_add(1, std::memory_order_relaxed);
  *handle = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Context* context = handle == nullptr ? nullptr : FindContext(handle);
  if (context == nullptr || handle != CurrentThread().current) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  uint32_t users = context->users.load(std::memory_order_relaxed);
  if (users == 0) return CUDA_ERROR_INVALID_CONTEXT;  // the primary one, never attached to
  if (context->users.fetch_sub(1, std::memory_order_relaxed) != 1) return CUDA_SUCCESS;
  return handle == PrimaryContext() ? CUDA_SUCCESS : Destroy(handle);
}

}  // extern "C"
