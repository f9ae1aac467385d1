// SPDX-License-Identifier: Apache-2.0
#include "shim/context/green_context.h"

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/device_resource.h"
#include "shim/event/context_order.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {

constinit std::atomic<bool> green_contexts_used{false};

namespace {

// A handle is reused only after so many other contexts were destroyed, so that a stale one is an
// error and not another context.
constexpr size_t kRestingContexts = 128;
static_assert(kMaxResourceGroups == wire::kMaxSplitGroups);
static_assert(kMaxResourceDescriptions < wire::kMaxDeviceParts);
static_assert(kMaxMorePicks == wire::kMaxPartPicks);

struct GreenContexts {
  HandleTable<GreenContext, wire::kMaxGreenContexts> table;
  Lock lock;
  Growing<uint32_t> resting GPULOOM_GUARDED_BY(lock);
};
// Each object stands for one of the executor's green contexts, by id.
constinit GreenContexts contexts;

// The same numbers under the wire's names and under those that shim and softgpu share
// (proto/libcuda/device_resource.h).
SmCounts CountsOf(const wire::Multiprocessors& has) {
  return {has.count, has.min_partition, has.alignment};
}

wire::SplitArguments ArgumentsOf(const SmSplit& split) {
  return {split.use_flags, split.min_count, split.groups, 0};
}

// Tells a context that was destroyed from a value that never was one, as the driver does. One that
// is still being made counts as none.
CUresult Find(CUgreenCtx handle, GreenContext** green) {
  *green = contexts.table.Find(handle);
  if (*green != nullptr && (*green)->made.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const GreenContext* gone = contexts.table.FindGone(handle);
  return gone != nullptr && gone->context != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                     : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult Need(CUgreenCtx handle, GreenContext** green) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  return Find(handle, green);
}

// Its fields stay readable: calls that use the handle later return that the context is destroyed.
void Give(GreenContext* green) {
  Holding holding(&contexts.lock);
  contexts.table.Give(contexts.lock, green, /*reuse=*/false);
  (void)contexts.resting.Push(contexts.table.IdOf(green));
  if (contexts.resting.count() > kRestingContexts) {
    contexts.table.Reuse(contexts.lock, contexts.resting[0]);
    contexts.resting.Remove(0);
  }
}

// A description is sent as the way it was made: splits of the device's resource and picks from
// them. The executor repeats these with its driver.
CUresult MakeAtExecutor(const GreenContext* green) {
  const ResourceDescription& described = *green->description;
  wire::GreenCreate::Request request = {};
  request.context = IdOf(green);
  request.part = wire::DevicePartId{described.id};
  request.of = wire::DevicePartId{described.of};
  request.whole = described.whole ? 1 : 0;
  request.remaining = described.remaining ? 1 : 0;
  if (!described.whole) request.split = ArgumentsOf(described.split);
  memcpy(request.picked, described.picked, sizeof(request.picked));
  wire::PartPick more[kMaxMorePicks] = {};
  for (uint32_t i = 0; i < described.more_count; ++i) {
    const ResourcePick& pick = described.more[i];
    more[i].what = pick.whole       ? wire::PartPick::What::kWhole
                   : pick.remaining ? wire::PartPick::What::kRemaining
                                    : wire::PartPick::What::kGroup;
    more[i].group = pick.group;
    if (!pick.whole) more[i].split = ArgumentsOf(pick.split);
  }
  wire::GreenCreate::Reply reply;
  return session.Call<wire::GreenCreate>(
      request, &reply, more, static_cast<uint32_t>(described.more_count * sizeof(wire::PartPick)));
}

// Executor, context, default stream, in this order, each of which needs the one before. `made`
// comes last: until then no other thread finds it, nor does a reset of the primary context destroy
// it.
CUresult Make(const ResourceDescription* description, GreenContext** out) {
  GreenContext* green;
  {
    Holding holding(&contexts.lock);
    green = contexts.table.Take(contexts.lock);
  }
  if (green == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  green->description = description;
  CUresult result = MakeAtExecutor(green);
  if (result != CUDA_SUCCESS) {
    Holding holding(&contexts.lock);
    contexts.table.Give(contexts.lock, green);
    return result;
  }
  green->context = MakeContextOf(green);
  Stream* stream = nullptr;
  result =
      green->context == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : MakeGreenStream(green, 0, &stream);
  if (result != CUDA_SUCCESS) {
    if (green->context != nullptr) EndContext(green->context);
    // The executor has made it, but the program never gets it.
    (void)session.Post<wire::GreenDestroy>({IdOf(green)});
    Give(green);
    return result;
  }
  green->default_stream = IdOf(stream);
  green->made.store(true, std::memory_order_release);
  green_contexts_used.store(true, std::memory_order_release);
  *out = green;
  return CUDA_SUCCESS;
}

// Call once, with the primary context's lock held. The Context ends first, so that no new work gets
// in while the streams are waited for.
void Destroy(GreenContext* green) {
  const auto context = reinterpret_cast<CUcontext>(green->context);
  EndContext(green->context);
  if (session.Check() == CUDA_SUCCESS) (void)WaitForStreamsOf(*green);
  EndStreamsOf(*green);
  ForgetContextOrder(context);
  (void)session.Post<wire::GreenDestroy>({IdOf(green)});
  Give(green);
}

// Functions on a green context need no current context, but the calls that they make do.
class InPrimaryContext {
 public:
  InPrimaryContext() : before_(CurrentThread().current) {
    CurrentThread().current = PrimaryContext();
  }
  ~InPrimaryContext() { CurrentThread().current = before_; }
  InPrimaryContext(const InPrimaryContext&) = delete;
  InPrimaryContext& operator=(const InPrimaryContext&) = delete;

 private:
  const CUcontext before_;
};

}  // namespace

// Null also when the current one was destroyed: then every use of it fails in NeedContext.
GreenContext* CurrentGreenContext() {
  const auto* current = reinterpret_cast<const Context*>(CurrentThread().current);
  return current == nullptr || !current->active.load(std::memory_order_acquire) ? nullptr
                                                                                : current->green;
}

wire::GreenContextId IdOf(const GreenContext* green) {
  return wire::GreenContextId{contexts.table.IdOf(green)};
}

CUgreenCtx HandleOf(const GreenContext* green) {
  return reinterpret_cast<CUgreenCtx>(const_cast<GreenContext*>(green));
}

// Skips those that are still being made: their makers hold no lock, and end them themselves if that
// fails.
uint32_t ForgetGreenContexts() {
  uint32_t count = 0;
  for (uint32_t id = 1; id <= contexts.table.used(); ++id) {
    GreenContext* green = contexts.table.At(id);
    if (green == nullptr || !green->made.load(std::memory_order_acquire)) continue;
    Destroy(green);
    ++count;
  }
  return count;
}

CUresult CheckResourceDevice(CUdevice device) { return NeedDevice(device); }

// How many multiprocessors a part has, and how it can be split.
CUresult GetPart(CUdevice, uint32_t part, SmCounts* has) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  wire::PartGet::Reply reply = {};
  const CUresult result = session.Call<wire::PartGet>({wire::DevicePartId{part}}, &reply);
  *has = CountsOf(reply.has);
  return result;
}

CUresult SplitPart(CUdevice, uint32_t part, const SmSplit& split, uint32_t* groups, SmCounts* group,
                   SmCounts* remaining) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  wire::PartSplit::Reply reply = {};
  const CUresult result =
      session.Call<wire::PartSplit>({wire::DevicePartId{part}, 0, ArgumentsOf(split)}, &reply);
  *groups = reply.groups;
  *group = CountsOf(reply.group);
  *remaining = CountsOf(reply.remaining);
  return result;
}

// For cuCtxGetDevResource: any context has a part, if only the whole device.
CUresult PartOfContext(CUcontext handle, CUdevice* device, uint32_t* part) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  const Context* context = handle == nullptr ? nullptr : FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = kOnlyDevice;
  // 0 is the whole device.
  *part = context->green == nullptr ? 0 : context->green->description->id;
  return CUDA_SUCCESS;
}

CUresult PartOfGreenContext(CUgreenCtx handle, CUdevice* device, uint32_t* part) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(handle, &green));
  *device = kOnlyDevice;
  *part = green->description->id;
  return CUDA_SUCCESS;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc description_handle, CUdevice device,
                          unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (handle == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  const ResourceDescription* description = nullptr;
  CUDA_RETURN_IF_ERROR(FindDescription(description_handle, device, &description));
  // A green context holds a reference to the primary one, which cuGreenCtxDestroy and a reset drop.
  CUcontext primary;
  CUDA_RETURN_IF_ERROR(cuDevicePrimaryCtxRetain(&primary, device));
  GreenContext* green = nullptr;
  const CUresult result = Make(description, &green);
  if (result != CUDA_SUCCESS) {
    (void)cuDevicePrimaryCtxRelease_v2(device);
    return result;
  }
  *handle = HandleOf(green);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(handle, &green));
  const InPrimaryContext in_primary;
  // First, because other threads may use the primary context meanwhile.
  (void)WaitForStreamsOf(*green);
  return ReleasePrimaryWith(
      [](void* doomed) {
        // Two threads may destroy it at once, or one while another resets the primary context.
        GreenContext* found = contexts.table.Find(doomed);
        if (found != nullptr) Destroy(found);
        return found != nullptr;
      },
      handle);
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(handle, &green));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(green->context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  CUDA_RETURN_IF_ERROR(session.Check());
  GreenContext* green = CurrentGreenContext();
  if (handle != nullptr) {
    CUDA_RETURN_IF_ERROR(Find(handle, &green));
  }
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = green->context->id;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* handle, CUgreenCtx green_handle, unsigned flags,
                                int priority) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(green_handle, &green));
  // CUDA allows no blocking streams in green contexts.
  if (handle == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  const CUresult result = MakeGreenStream(green, priority, &stream);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUstream>(stream);
  return result;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* handle) {
  GreenContext* green = nullptr;
  CUDA_RETURN_IF_ERROR(GreenContextOf(stream, DefaultStream::kLegacy, &green));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = green == nullptr ? nullptr : HandleOf(green);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(handle, &green));
  return cuCtxRecordEvent(reinterpret_cast<CUcontext>(green->context), event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  GreenContext* green;
  CUDA_RETURN_IF_ERROR(Need(handle, &green));
  return cuCtxWaitEvent(reinterpret_cast<CUcontext>(green->context), event);
}

}  // extern "C"
