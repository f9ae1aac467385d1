// SPDX-License-Identifier: Apache-2.0
// cuGreenCtx* and its relatives. What the resources are is in proto/libcuda/device_resource_api.cc.
#include "agent/softgpu/driver/green_context.h"

#include <algorithm>

#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom {

using namespace softgpu;  // this file joins the two

// Twos: with the eights of a device of compute capability 9.0 four multiprocessors could not be
// divided at all.
constexpr uint32_t kPartition = 2;

CUresult CheckResourceDevice(CUdevice device) {
  CUDA_RETURN_IF_ERROR(Ready());
  return FindDevice(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

namespace {

// The resource of a green context, which describes the part that it was made of.
const ResourceDescription* DescriptionOf(CUdevice device, uint32_t part) {
  for (Context* context : AllContexts()) {
    if (context->green != nullptr && context->green->description->id == part &&
        context->device.ordinal == device) {
      return context->green->description;
    }
  }
  return nullptr;
}

// A context that was made of it has been seen: its resource cannot come from elsewhere.
uint32_t CountOf(CUdevice device, uint32_t part) {
  if (part == 0) return static_cast<uint32_t>(Multiprocessors());
  const ResourceDescription* description = DescriptionOf(device, part);
  return description == nullptr ? 0
                                : std::min(description->count, CountOf(device, description->of));
}

}  // namespace

CUresult GetPart(CUdevice device, uint32_t part, SmCounts* has) {
  *has = {CountOf(device, part), kPartition, kPartition};
  return CUDA_SUCCESS;
}

// As the real driver does: sizes are rounded up, but never beyond all there is.
CUresult SplitPart(CUdevice device, uint32_t part, const SmSplit& split, uint32_t* groups,
                   SmCounts* group, SmCounts* remaining) {
  const uint32_t count = CountOf(device, part);
  if (split.min_count > count || count == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const uint32_t wanted = std::max(split.min_count, 1u);
  const uint32_t size = std::min((wanted + kPartition - 1) / kPartition * kPartition, count);
  *groups = std::min(split.groups, count / size);
  *group = {size, 0, 0};
  *remaining = {count - *groups * size, 0, 0};
  return CUDA_SUCCESS;
}

CUresult PartOfContext(CUcontext handle, CUdevice* device, uint32_t* part) {
  CUDA_RETURN_IF_ERROR(Ready());
  const Context* context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device.ordinal;
  *part = context->green == nullptr ? 0 : context->green->description->id;
  return CUDA_SUCCESS;
}

CUresult PartOfGreenContext(CUgreenCtx handle, CUdevice* device, uint32_t* part) {
  CUDA_RETURN_IF_ERROR(Ready());
  Context* context = nullptr;
  const CUresult result = FindGreenContext(handle, context);
  return result != CUDA_SUCCESS ? result : PartOfContext(context->handle(), device, part);
}

namespace softgpu {

CUresult FindGreenContext(CUgreenCtx handle, Context*& found) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  for (Context* context : AllContexts()) {
    if (context->green == nullptr || context->green->handle() != handle) continue;
    found = context;
    return context->alive.load() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

unsigned TearDownGreenContexts(const Device& device) {
  unsigned ended = 0;
  for (Context* context : AllContexts()) {
    if (context->green == nullptr || &context->device != &device) continue;
    if (context->TearDown()) ++ended;
  }
  return ended;
}

std::vector<Context*> WithGreenContexts(Context& context) {
  std::vector<Context*> all = {&context};
  for (Context* other : AllContexts()) {
    if (other->green != nullptr && &other->Owner() == &context) all.push_back(other);
  }
  return all;
}

}  // namespace softgpu
}  // namespace gpuloom

using namespace gpuloom::softgpu;  // this part only defines CUDA's C functions

namespace {

// A driver without fault, and a green context that lives.
CUresult Need(CUgreenCtx handle, Context*& context) {
  CUDA_RETURN_IF_ERROR(Healthy());
  return FindGreenContext(handle, context);
}

// The living green context that the calling thread has current, or nullptr.
Context* CurrentGreen() {
  Context* current = CurrentContext();
  return current != nullptr && current->green != nullptr && current->alive ? current : nullptr;
}

}  // namespace

extern "C" {

CUresult cuGreenCtxCreate(CUgreenCtx* created, CUdevResourceDesc handle, CUdevice ordinal,
                          unsigned flags) {
  CUDA_RETURN_IF_ERROR(Healthy());
  // CUDA has no green context without a default stream of its own.
  if (created == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const gpuloom::ResourceDescription* description = nullptr;
  CUDA_RETURN_IF_ERROR(gpuloom::FindDescription(handle, ordinal, &description));
  // Released when the green context is destroyed: its memory and modules are the primary one's.
  CUcontext primary = nullptr;
  CUDA_RETURN_IF_ERROR(cuDevicePrimaryCtxRetain(&primary, ordinal));
  *created = MakeGreenContext(*device, description)->green->handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(FindGreenContext(handle, context));
  // Another thread may be destroying it at the same time; one of them releases the primary one.
  if (!context->TearDown()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return cuDevicePrimaryCtxRelease_v2(context->device.ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext* converted, CUgreenCtx handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Need(handle, context));
  if (converted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *converted = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  CUDA_RETURN_IF_ERROR(Healthy());
  // NULL means the current one, if that is green.
  Context* context = CurrentGreen();
  if (handle != nullptr) {
    CUDA_RETURN_IF_ERROR(FindGreenContext(handle, context));
  }
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* created, CUgreenCtx handle, unsigned flags,
                                int priority) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(Need(handle, context));
  // CUDA wants this flag for streams of green contexts.
  if (created == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  auto stream = context->MakeStream(flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  *created = reinterpret_cast<CUstream>(stream.get());
  Registry<Stream>::Instance().Add(std::move(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto stream = FindStream(*context, handle, gpuloom::DefaultStream::kLegacy);
  if (stream == nullptr) return NoStream(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = stream->context.green == nullptr ? nullptr : stream->context.green->handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  Context* context = nullptr;
  const CUresult result = Need(handle, context);
  return result != CUDA_SUCCESS ? result : cuCtxRecordEvent(context->handle(), event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  Context* context = nullptr;
  const CUresult result = Need(handle, context);
  return result != CUDA_SUCCESS ? result : cuCtxWaitEvent(context->handle(), event);
}

}  // extern "C"
